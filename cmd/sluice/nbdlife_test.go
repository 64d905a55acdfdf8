package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/identity"
)

func dialPlain(t *testing.T, network, addr, export string, upgrade *tls.Config) (
	*plainClient, error) {
	t.Helper()
	nc, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { nc.Close() })
	return attachPlain(nc, export, upgrade)
}

// TestNBDReload: a file of exports is read again on SIGHUP. Connections of an export that stays do
// not notice, those of the others end; a file that is wrong changes nothing.
func TestNBDReload(t *testing.T) {
	bin, dir := linkSelf(t), t.TempDir()
	disk := noise(t, 1<<20)
	file := filepath.Join(dir, "sluice.toml")
	write := func(text string) {
		t.Helper()
		text = strings.ReplaceAll(text, "DISK", disk)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "[[nbd]]\nlisten = 'unix:s'\nadmin = '127.0.0.1:0'\n"
	const stays = "[[nbd.export]]\nname = 'stays'\nmem = '1M'\ndescription = 'the first, of two'\n"
	write(head + stays + "[[nbd.export]]\nname = 'a'\nfile = 'DISK'\n")
	p := startNBD(t, bin, "--config", file)
	p.says("serving nbd\\+unix:///a\\?socket=")
	socket := filepath.Join(dir, "s")
	use := func(export string) *plainClient {
		t.Helper()
		c, err := dialPlain(t, "unix", socket, export, nil)
		if err != nil {
			t.Fatalf("%s: %v; it says:\n%s", export, err, p.said)
		}
		return c
	}
	first, a := use("stays"), use("a")
	info := mustRun(t, "nbdinfo", "--list", "nbd+unix:///?socket="+socket)
	if !strings.Contains(info, "the first, of two") {
		t.Errorf("%s", info)
	}

	// The same file under another name: the old one must be closed first.
	write(head + stays + "[[nbd.export]]\nname = 'b'\nfile = 'DISK'\nfilter = ['readonly', 'log']\n")
	p.signal(syscall.SIGHUP)
	p.says("msg=reloaded .*exports=2 new=1")
	if err := a.read(0); err == nil {
		t.Error("the export that is gone is served")
	}
	if err := first.read(0); err != nil {
		t.Errorf("the one that stays: %v", err)
	}
	if err := use("b").read(0); err != nil {
		t.Errorf("the new one: %v", err)
	}
	if _, err := dialPlain(t, "unix", socket, "a", nil); err == nil {
		t.Error("the old one is still there")
	}
	out := mustRun(t, "nbdinfo", "nbd+unix:///b?socket="+socket)
	if !strings.Contains(out, "is_read_only: true") {
		t.Errorf("%s", out)
	}
	write(head + stays + "[[nbd.export]]\nname = 'c'\nmem = '1M'\nfilter = 'none'\n")
	p.signal(syscall.SIGHUP)
	p.says("the file is not taken")
	if err := use("b").read(0); err != nil {
		t.Errorf("after a file that is wrong: %v", err)
	}

	p.metricsHave(`sluice_nbd_export_reads_total{export="stays"} 1`,
		`sluice_nbd_export_read_bytes_total{export="b"} `, "sluice_nbd_connections ")
	p.signal(syscall.SIGTERM)
	if err := p.ended(); err != nil {
		t.Errorf("%v: %s", err, p.said)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is left")
	}
}

// metricsHave looks for text in the metrics of a gateway.
func (p *nbdProcess) metricsHave(wants ...string) {
	p.t.Helper()
	r, err := http.Get(p.says(`metrics are at (http://\S+)/metrics`) + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	for _, want := range wants {
		if err != nil || !strings.Contains(string(text), want) {
			p.t.Errorf("%v: %s is not in the metrics", err, want)
		}
	}
}

// TestNBDByActivation: programs that start their server themselves, by the protocol of systemd.
func TestNBDByActivation(t *testing.T) {
	self := filepath.Join(linkSelf(t), "sluice")
	image := noise(t, 5<<20)
	copy1, copy2 := filepath.Join(t.TempDir(), "1"), filepath.Join(t.TempDir(), "2")
	mustRun(t, "nbdcopy", "--", "[", self, "nbd", "--export", "name=,file="+image+",ro", "]", copy1)
	sameContent(t, image, copy1)
	if err := os.WriteFile(copy2, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(copy2, 5<<20); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "nbdcopy", "--", image, "[", self, "nbd", "--export", "name=,file="+copy2, "]")
	sameContent(t, image, copy2)
	// What nbdinfo prints is nbdinfo's alone.
	var info struct{ Exports []map[string]any }
	out := mustRun(t, "nbdinfo", "--json", "--", "[", self, "nbd", "--export",
		"name=,file="+image+",ro", "]")
	if err := json.Unmarshal([]byte(out), &info); err != nil || len(info.Exports) != 1 {
		t.Errorf("%v: %s", err, out)
	}
	// Who compares by copying.
	mustRun(t, "nbdcopy", "--", image, "[", self, "nbd", "--export",
		"name=,file="+image+",filter=checkwrite", "]")
	other := noise(t, 5<<20)
	if out, err := runTool(t, "nbdcopy", "--", other, "[", self, "nbd", "--export",
		"name=,file="+image+",filter=checkwrite", "]"); err == nil {
		t.Errorf("other data is the same: %s", out)
	}
}

// TestNBDHandedSockets: a socket that other hosts reach is not served to everybody, whoever opened
// it, and one that belongs to another process is not taken.
func TestNBDHandedSockets(t *testing.T) {
	self := filepath.Join(linkSelf(t), "sluice")
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	run := func(pid, more string) string {
		// The shell's number becomes that of the server.
		cmd := exec.Command("timeout", "20", "sh", "-c", "LISTEN_FDS=1 LISTEN_PID="+pid+" exec "+self+
			" nbd --export name=,mem=1M "+more)
		cmd.ExtraFiles = []*os.File{f}
		cmd.Dir = t.TempDir()
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if out := run("$$", ""); !strings.Contains(out, "nothing asks them who they are") {
		t.Errorf("%s", out)
	}
	if out := run("$$", "--listen unix:s"); !strings.Contains(out, "Leave --listen out") {
		t.Errorf("%s", out)
	}
	if out := run("1", "--run 'echo $LISTEN_FDS.'"); out != "1.\n" {
		t.Errorf("not meant: %s", out)
	}
}

func TestNBDRun(t *testing.T) {
	self := filepath.Join(linkSelf(t), "sluice")
	run := func(args ...string) (string, int) {
		cmd := exec.Command("timeout", append([]string{"60", self, "nbd"}, args...)...)
		cmd.Dir = t.TempDir()
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := run("--export", "name=a b,mem=1M", "--run", "nbdinfo --size \"$uri\"; exit 7")
	if out != "1048576\n" || code != 7 {
		t.Errorf("%d: %s", code, out)
	}
	out, code = run("--export", "name=x,mem=1M", "--run", "stat -c %a $unixsocket")
	if out != "600\n" || code != 0 {
		t.Errorf("%d: %s", code, out)
	}
}

// TestNBDStdio: one client on a pair of sockets, as nbd_connect_command has it.
func TestNBDStdio(t *testing.T) {
	self := filepath.Join(linkSelf(t), "sluice")
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	cmd := exec.Command(self, "nbd", "--stdio", "--export", "name=x,mem=1M")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	nc, err := net.FileConn(near)
	near.Close()
	if err != nil {
		t.Fatal(err)
	}
	c, err := attachPlain(nc, "x", nil)
	if err == nil {
		err = c.read(0)
	}
	if err != nil {
		t.Error(err)
	}
	nc.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Error("it goes on without its client")
	}
}

func TestNBDOneShot(t *testing.T) {
	p := startNBD(t, linkSelf(t), "--listen", "127.0.0.1:0", "--one-shot", "--export", "name=x,mem=1M")
	addr := p.says(`serving nbd://(\S+)/x`)
	c, err := dialPlain(t, "tcp", addr, "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.read(0); err != nil {
		t.Error(err)
	}
	c.nc.Close()
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	// The port is free at once.
	q := startNBD(t, linkSelf(t), "--listen", addr, "--export", "name=x,mem=1M")
	q.says("serving")
}

// TestNBDReplace: a server takes the socket over from one that goes on with its clients, and the
// end of the old one does not take the socket away.
func TestNBDReplace(t *testing.T) {
	bin, dir := linkSelf(t), t.TempDir()
	socket := filepath.Join(dir, "s")
	old := startNBD(t, bin, "--listen", "unix:"+socket, "--export", "name=x,mem=1M")
	old.says("serving")
	before, err := dialPlain(t, "unix", socket, "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	young := startNBD(t, bin, "--listen", "unix:"+socket, "--replace", "--export", "name=y,mem=1M")
	young.says("serving")
	if err := before.read(0); err != nil {
		t.Errorf("a client of the old one: %v", err)
	}
	if _, err := dialPlain(t, "unix", socket, "y", nil); err != nil {
		t.Error(err)
	}
	old.signal(syscall.SIGTERM)
	if err := old.ended(); err != nil {
		t.Error(err)
	}
	after, err := dialPlain(t, "unix", socket, "y", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := after.read(0); err != nil {
		t.Error(err)
	}
}

// TestNBDForMembers: a host of a cluster serves its members, and knows them by name.
func TestNBDForMembers(t *testing.T) {
	a, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "a"), identity.NewClusterID(),
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "b"), identity.NewClusterID(),
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	bin := linkSelf(t)
	credential := func(k identity.Kind, name string) string {
		file := filepath.Join(t.TempDir(), "c.json")
		if err := adminMember(t, a, k, name).Credential().Write(file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	p := startNBD(t, bin, "--listen", "0.0.0.0:0", "--tls-credential", credential(identity.Host, "h1"),
		"--export", "name=all,mem=1M", "--export", "name=anns,mem=1M,allow=ann:host/h2")
	_, port, _ := net.SplitHostPort(p.says(`serving nbds://(\S+)/all`))
	addr := "127.0.0.1:" + port
	for _, q := range []struct {
		by     *identity.Authority
		kind   identity.Kind
		name   string
		export string
		ok     bool
	}{
		{a, identity.Client, "ann", "anns", true}, {a, identity.Client, "bob", "anns", false},
		{a, identity.Client, "bob", "all", true}, {a, identity.Host, "h2", "anns", true},
		{a, identity.Client, "h2", "anns", false}, {other, identity.Client, "ann", "all", false},
	} {
		conf := adminMember(t, q.by, q.kind, q.name).ClientTLS()
		conf.VerifyConnection = nil // that the others are strangers is the server's to find out
		c, err := dialPlain(t, "tcp", addr, q.export, conf)
		if err == nil {
			err = c.read(0)
		}
		if (err == nil) != q.ok {
			t.Errorf("%v %s at %s: %v", q.kind, q.name, q.export, err)
		}
	}
	cmd := exec.Command(filepath.Join(bin, "sluice"), "nbd", "--export", "name=a,mem=1M",
		"--tls-credential", credential(identity.Client, "ann"))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "of a host") {
		t.Errorf("a client as server: %v, %s", err, out)
	}
}

// TestNBDKeysAreRead again on SIGHUP: whoever the new authority did not sign has to go.
func TestNBDKeysAreRead(t *testing.T) {
	one, two := newPEMAuthority(t), newPEMAuthority(t)
	keys := one.flags()
	p := startNBD(t, linkSelf(t), append(keys, "--listen", "127.0.0.1:0", "--export",
		"name=x,mem=1M")...)
	addr := p.says(`serving nbds://(\S+)/x`)
	use := func(a *pemAuthority) (*plainClient, error) {
		cert, _, _ := a.make("ann")
		c, err := dialPlain(t, "tcp", addr, "x", &tls.Config{InsecureSkipVerify: true,
			Certificates: []tls.Certificate{cert}})
		if err == nil {
			err = c.read(0)
		}
		return c, err
	}
	ann, err := use(one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := use(two); err == nil {
		t.Error("a stranger")
	}
	next := two.flags()
	for i := 1; i < len(keys); i += 2 {
		text, err := os.ReadFile(next[i])
		if err == nil {
			err = os.WriteFile(keys[i], text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p.signal(syscall.SIGHUP)
	gone := func() bool { return ann.read(0) != nil }
	if err := eventually("the old client is gone", gone); err != nil {
		t.Errorf("%v; it says\n%s", err, p.said)
	}
	if _, err := use(two); err != nil {
		t.Errorf("a client of the new authority: %v", err)
	}
	if _, err := use(one); err == nil {
		t.Error("one of the old authority")
	}
	if err := os.WriteFile(keys[1], []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.says("the keys are not taken")
	if _, err := use(two); err != nil {
		t.Errorf("after files that are wrong: %v", err)
	}
}

// TestNBDHandedWithFile: where sockets are handed over, the file says what is served, not where.
func TestNBDHandedWithFile(t *testing.T) {
	self := filepath.Join(linkSelf(t), "sluice")
	file := filepath.Join(t.TempDir(), "sluice.toml")
	text := "[[nbd]]\nlisten='127.0.0.1:1'\nadmin='off'\n[[nbd.export]]\nname=''\nmem='3M'\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mustRun(t, "nbdinfo", "--size", "--", "[", self, "nbd", "--config", file, "]"); got !=
		"3145728\n" {
		t.Errorf("%s", got)
	}
}
