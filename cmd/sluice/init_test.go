package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
)

func labCluster() clusterConfig {
	return clusterConfig{Name: "lab", Host: "h1", Iods: 2, Listen: "127.0.0.1:0"}
}

// TestInitGoesOnAfterEachStep: who is killed between two steps leaves what the next attempt ends.
func TestInitGoesOnAfterEachStep(t *testing.T) {
	n := len((&founding{cfg: labCluster()}).steps())
	for done := range n + 1 {
		dir := filepath.Join(t.TempDir(), "c")
		f := &founding{dir: dir, cfg: labCluster()}
		for _, s := range f.steps()[:done] {
			if err := s.do(); err != nil {
				t.Fatalf("%s: %v", s.what, err)
			}
		}
		checkFounded(t, dir, done)
	}
}

// checkFounded repeats an init, and looks at what it has made.
func checkFounded(t *testing.T, dir string, round any) {
	t.Helper()
	f := &founding{dir: dir, cfg: labCluster()}
	if _, err := f.run(); err != nil {
		t.Fatalf("after %v: %v", round, err)
	}
	cfg, err := loadConfig(filepath.Join(dir, config.FileName))
	if err != nil || cfg.Cluster != "lab" || cfg.Host != "h1" || len(cfg.Iods) != 2 {
		t.Fatalf("after %v: %+v, %v", round, cfg, err)
	}
	if _, err := openHost(cfg); err != nil {
		t.Fatalf("after %v: %v", round, err)
	}
	for _, name := range []string{"iod1/store.json", "iod2/store.json", "cluster.secret"} {
		if !isFile(filepath.Join(dir, name)) {
			t.Errorf("after %v there is no %s", round, name)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "meta")); err != nil || len(left) == 0 {
		t.Errorf("after %v the metadata store is empty: %v", round, err)
	}
}

// TestInitKilled kills it at moments spread over the time that it takes. Where each kill hits is
// not known, and does not matter: the next attempt ends well.
func TestInitKilled(t *testing.T) {
	bin := linkSelf(t)
	start := func(dir string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, "sluice"), "init", "--dir", dir, "--name", "lab", "--host",
			"h1", "--iods", "2", "--listen", "127.0.0.1:0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	begin := time.Now()
	if err := start(filepath.Join(t.TempDir(), "c")).Wait(); err != nil {
		t.Fatal(err)
	}
	took, moments := time.Since(begin), 32
	if testing.Short() {
		moments = 8
	}
	for i := range moments {
		dir := filepath.Join(t.TempDir(), "c")
		cmd := start(dir)
		time.Sleep(took * time.Duration(i) / time.Duration(moments))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		checkFounded(t, dir, fmt.Sprintf("kill %d", i))
	}
}

// TestHalfMadeStores: blocks that are whole, but whose store.json was not written, are made anew
// by an init that was interrupted, and by nobody else.
func TestHalfMadeStores(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	f := &founding{dir: dir, cfg: labCluster()}
	for _, s := range f.steps()[:4] {
		if err := s.do(); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dir, "iod1", "store.json")
	if err := os.Rename(name, name+".tmp"); err != nil {
		t.Fatal(err)
	}
	checkFounded(t, dir, "half a store")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := (&founding{dir: dir, cfg: labCluster()}).run(); !errors.Is(err, errs.Exists) {
		t.Fatalf("a store whose store.json was lost was made anew: %v", err)
	}
}

func TestInitRefusesWhatBelongsToOthers(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(dir string) error
		say   string
	}{
		"another cluster": {func(dir string) error {
			other := labCluster()
			other.Name = "other"
			_, err := createCluster(dir, other)
			return err
		}, "belongs to the cluster other, not lab"},
		"other servers": {func(dir string) error {
			other := labCluster()
			other.Iods = 3
			_, err := createCluster(dir, other)
			return err
		}, "was made differently"},
		"metadata": {func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "meta"), 0o700),
				os.WriteFile(filepath.Join(dir, "meta", "000001.log"), nil, 0o600))
		}, "meta is not empty: it belongs to another cluster"},
		"a store": {func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "iod2"), 0o700),
				os.WriteFile(filepath.Join(dir, "iod2", "store.json"), nil, 0o600))
		}, "iod2 is not empty: it belongs to another cluster"},
		"wide": {func(dir string) error { return os.Chmod(dir, 0o777) }, "others could replace the keys"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.leave(dir); err != nil {
				t.Fatal(err)
			}
			_, err := (&founding{dir: dir, cfg: labCluster()}).run()
			if err == nil || !strings.Contains(err.Error(), c.say) {
				t.Fatalf("%v", err)
			}
			if isFile(filepath.Join(dir, config.FileName)) {
				t.Fatal("it has written its file")
			}
		})
	}
}

// TestEditedFilesAreTheirs: a change of how a cluster was made reaches its file, unless somebody
// has edited that.
func TestEditedFilesAreTheirs(t *testing.T) {
	c, err := createCluster(t.TempDir(), labCluster())
	if err == nil {
		err = c.writeConfig(c.cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	grown := c.cfg
	grown.Iods = 3
	if edited, err := c.changeConfig(c.cfg, grown); edited || err != nil {
		t.Fatal(edited, err)
	}
	cfg, err := loadConfig(c.configFile())
	if err != nil || len(cfg.Iods) != 3 {
		t.Fatalf("%+v, %v", cfg, err)
	}
	appendTo(t, c.configFile(), "# mine\n")
	if edited, err := c.changeConfig(grown, c.cfg); !edited || err != nil {
		t.Fatal(edited, err)
	}
}

// TestRolesSayWhatFilesSay holds command lines against a file.
func TestRolesSayWhatFilesSay(t *testing.T) {
	c := &cluster{dir: "/c"}
	cfg, err := parseConfig([]byte(`
providers = ["tcp"]
progress = "poll"
trust-local = true
data-network = "127.0.0.0/8"
[meta]
listen = ["127.0.0.1:5", "127.0.0.2:5"]
session-time = "40s"
[[iod]]
id = 4
store = ["/d1", "/d2"]
memory = "1G"
size = "10G"
write-back = false
reserve = 0
[[nbd]]
listen = "127.0.0.1:0"
timeout = "5s"
[[nbd.export]]
name = "a,b"
file = "/x,y"
read-only = true
[[mount]]
dir = "/m"
path = "/sub"
options = ["noatime", "ro"]
allow-other = false
timeout = "0s"
`), "/c/sluice.toml")
	if err != nil {
		t.Fatal(err)
	}
	iods, err := iodRoles(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		got  role
		want string
	}{
		{metaRole(c, cfg), "meta --dir /c --listen 127.0.0.1:5,127.0.0.2:5 --session-time 40s " +
			"--providers tcp --progress poll --admin 127.0.0.1:0 --trust-local"},
		{iods[0], "iod --dir /c --id 4 --listen 127.0.0.1:0 --store /d1 --store /d2 --size 10G " +
			"--memory 1G --write-back=false --lend=true --huge-pages auto --reserve 0 --providers tcp " +
			"--progress poll --admin 127.0.0.1:0 --trust-local"},
		{nbdRoles(c, cfg, "sluice://h:1")[0], "nbd --listen 127.0.0.1:0 --timeout 5s --addr-file " +
			"/c/run/nbd1.addr --admin 127.0.0.1:0 --admin-file /c/run/nbd1.admin --config " +
			"/c/sluice.toml --gateway nbd1 --providers tcp --progress poll --url sluice://h:1 " +
			"--secret /c/cluster.secret"},
		{mountRoles(c, cfg, "sluice://h:1")[0], "mount --keep-trying --admin-file /c/run/mount.admin " +
			"--cache close-to-open --atime relatime --timeout 0s --admin 127.0.0.1:0 " +
			"--secret /c/cluster.secret --allow-other=false -o noatime -o ro --providers tcp " +
			"--progress poll -- sluice://h:1/sub /m"},
	} {
		if got := strings.Join(r.got.args, " "); got != r.want {
			t.Errorf("%s\nwant\n%s", got, r.want)
		}
	}
	cfg.DataNetwork = config.List{"203.0.113.0/24"}
	if _, err := iodRoles(c, cfg); err == nil || !strings.Contains(explain(err), "Its addresses are") {
		t.Errorf("a network where this host is not: %v", err)
	}
}

// TestUnit: systemd takes the unit, where there is one to ask, and what must be in it is.
func TestUnit(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []bool{false, true} {
		text := unitText(self, "/etc/a b/100%.toml", user)
		for _, want := range []string{"Type=notify", `--config "/etc/a b/100%%.toml"`,
			"Restart=on-failure", "LimitMEMLOCK=infinity", "TimeoutStopSec=120",
			"ExecReload=/bin/kill -HUP $MAINPID",
			"KillMode=mixed", "WatchdogSec=", "WantedBy="} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in:\n%s", want, text)
			}
		}
		for _, hides := range []string{"ProtectSystem", "PrivateTmp", "PrivateDevices", "ProtectHome",
			"DevicePolicy", "PrivateMounts", "ProtectKernel", "ReadWritePaths"} {
			if strings.Contains(text, hides+"=") {
				t.Errorf("%s would hide mounts or devices", hides)
			}
		}
		verify, err := exec.LookPath("systemd-analyze")
		if err != nil {
			t.Log("systemd is not here to be asked")
			continue
		}
		name := filepath.Join(dir, "sluice.service")
		write(t, name, []byte(text))
		out, err := exec.Command(verify, "--man=no", "verify", name).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "sluice.service") {
				t.Errorf("systemd says: %s (%v)", line, err)
			}
		}
	}
}

// TestAttachUnit: systemd takes the template of what attaches volumes, and what must be in it is.
func TestAttachUnit(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := attachUnitText(self)
	for _, want := range []string{"Type=notify", "attach --foreground $ATTACH_FLAGS -- %I",
		"Restart=on-failure", "LimitMEMLOCK=infinity", "TimeoutStopSec=90", "KillMode=mixed",
		"Before=remote-fs-pre.target", "WantedBy=remote-fs.target"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd is not here to be asked")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sluice-attach@.service"), []byte(text))
	out, err := exec.Command(verify, "--man=no", "verify",
		filepath.Join(dir, "sluice-attach@db.service")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "sluice-attach") {
		t.Errorf("systemd says: %s (%v)", out, err)
	}
}
