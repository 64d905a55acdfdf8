package systest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAFlippedBitInTheMetadatasLog: a cluster is killed and one bit of the metadata's log is
// inverted. The cluster does not start and says what to do; check tells the place; after a salvage
// each file is there with its bytes, or named as lost, and no new file shows bytes of another.
func TestAFlippedBitInTheMetadatasLog(t *testing.T) {
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("seed %d (SLUICE_SEED)", seed)
	rng := rand.New(rand.NewPCG(seed, 21))
	opts := clusterOptions{iods: 2, mount: true}
	c := startCluster(t, opts)
	const files = 120
	content := func(kind string, i int) []byte {
		return bytes.Repeat(fmt.Appendf(nil, "%s %d ", kind, i), 200)
	}
	for i := range files {
		path := filepath.Join(c.mnt, fmt.Sprintf("old-%d", i))
		if i%8 == 0 {
			writeSynced(t, path, content("old", i))
		} else {
			must(t, os.WriteFile(path, content("old", i), 0o600))
		}
	}
	must(t, syncDir(c.mnt))
	killAll(t, c)

	log := largestLog(t, filepath.Join(c.dir, "meta"))
	bad, _ := randomFlip(t, rng, log, 40<<10)
	t.Logf("flipped: %v", bad)
	bad.do(t)

	said := c.refusedUp(t)
	for _, want := range []string{"damaged at byte", "meta salvage", filepath.Base(log)} {
		if !strings.Contains(said, want) {
			t.Errorf("up does not say %q:\n%s", want, said)
		}
	}
	out, err := exec.Command(c.bin, "meta", "check", "--dir", c.dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), filepath.Base(log)) {
		t.Errorf("check: %v\n%s", err, out)
	}
	lost := run(t, "", c.bin, "meta", "salvage", "--accept-loss", "--dir", c.dir)
	t.Logf("salvage: %s", tail(lost))
	run(t, "", c.bin, "meta", "check", "--dir", c.dir)
	c.up(t)
	missing := 0
	for i := range files {
		name := fmt.Sprintf("old-%d", i)
		got, err := os.ReadFile(filepath.Join(c.mnt, name))
		switch {
		case err != nil && !strings.Contains(lost, "commits that were there are lost"):
			t.Errorf("%s is gone (%v), and nobody said so", name, err)
		case err != nil:
			missing++
		case !bytes.Equal(got, content("old", i)) && !bytes.HasPrefix(content("old", i), got):
			t.Errorf("%s has other bytes: %.40q", name, got)
		}
	}
	if missing > files/10 {
		t.Errorf("%d of %d files are gone after one flipped bit", missing, files)
	}
	for i := range files / 2 {
		path := filepath.Join(c.mnt, fmt.Sprintf("new-%d", i))
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Truncate(path, 4096))
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, make([]byte, 4096)) {
			t.Errorf("%s, never written, reads %.40q, %v", path, got, err)
		}
	}
}

// killAll kills the supervisor and everything that it started, at once.
func killAll(t *testing.T, c *cluster) {
	t.Helper()
	st, err := c.state()
	must(t, err)
	_ = c.cmd.Process.Kill()
	for _, p := range st.Processes {
		if p.PID > 0 {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	_ = c.cmd.Wait()
	if c.mnt != "" {
		_ = syscall.Unmount(c.mnt, syscall.MNT_DETACH)
	}
	for _, p := range st.Processes {
		for deadline := time.Now().Add(60 * time.Second); p.PID > 0 && alive(p.PID); {
			if time.Now().After(deadline) {
				t.Fatalf("%s, process %d, does not end", p.Name, p.PID)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// upArgs starts the cluster that is there.
func (c *cluster) upArgs() []string {
	args := []string{"up", "--dir", c.dir, "--listen", "127.0.0.1:0"}
	if c.mnt != "" {
		args = append(args, "--mount", c.mnt)
	}
	return append(append(args, c.opts.args()...), c.opts.extra...)
}

// up starts the cluster again.
func (c *cluster) up(t *testing.T) {
	t.Helper()
	c.cmd = exec.Command(c.bin, c.upArgs()...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	must(t, c.cmd.Start())
	c.awaitReady(t, c.opts)
}

// refusedUp starts a cluster that must not start and returns what it says.
func (c *cluster) refusedUp(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(c.bin, c.upArgs()...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	must(t, cmd.Start())
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	err := cmd.Wait()
	timer.Stop()
	if err == nil {
		t.Errorf("the damaged cluster starts")
	}
	c.cmd = cmd // has ended: nothing to stop
	return said.String()
}

// largestLog is the log with the most bytes in a folder.
func largestLog(t *testing.T, dir string) (path string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	must(t, err)
	size := int64(-1)
	for _, name := range logs {
		info, err := os.Stat(name)
		must(t, err)
		if info.Size() > size {
			path, size = name, info.Size()
		}
	}
	if path == "" {
		t.Fatalf("no log in %s", dir)
	}
	return path
}
