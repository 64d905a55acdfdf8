package systest

import (
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

// TestFsckOfABusyCluster: every kind of program works, trees come and go; meanwhile and afterwards
// a check finds nothing, and the running cluster can be dumped.
func TestFsckOfABusyCluster(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	l := newLoad(t, c, rand.New(rand.NewPCG(seed, 14)))
	l.start(t)
	healthy := func(args ...string) {
		t.Helper()
		out := c.sluice(t, append([]string{"fsck"}, args...)...)
		if !strings.Contains(out, ": 0 findings, ") {
			t.Errorf("fsck: %s", out)
		}
	}
	for i := range 4 {
		tree := filepath.Join(c.mnt, fmt.Sprint("tree", i))
		for k := range 40 {
			dir := filepath.Join(tree, fmt.Sprint(k%7), fmt.Sprint(k%3))
			must(t, os.MkdirAll(dir, 0o755))
			must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(k)), make([]byte, 5000*k), 0o644))
		}
		c.sluice(t, "rm", "-r", fmt.Sprint("/tree", i))
		healthy()
		// A mount believes a name for a moment.
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(tree); os.IsNotExist(err) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s is still there", tree)
			}
		}
	}
	backup := filepath.Join(t.TempDir(), "backup")
	c.sluice(t, "meta", "dump", backup)
	healthy("--repair", "--rate", "20000")
	l.finish()
	l.verify(t, 0, "a check")
	healthy()
}

// TestFsckWhileTheServiceDies: the run is lost with the service; the check begins again and comes
// to its end.
func TestFsckWhileTheServiceDies(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	for i := range 30 {
		must(t, os.WriteFile(filepath.Join(c.mnt, fmt.Sprint("f", i)), make([]byte, 3000), 0o644))
	}
	run(t, "", "sync", filepath.Join(c.mnt, "f0"))
	// Some 150 records take longer than a second; a busy machine may kill before the run has begun,
	// or after its end: then once more.
	for delay := time.Second; ; delay += time.Second {
		pid := c.pidOf(t, "meta")
		cmd := exec.Command(c.bin, "fsck", "--rate", "20", "--url", c.url)
		killed := time.AfterFunc(delay, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		all, err := cmd.CombinedOutput()
		killed.Stop()
		out := string(all)
		if strings.Contains(out, "Is the cluster running") && delay < 5*time.Second {
			c.awaitSuccessor(t, "meta", pid) // it was killed before fsck had come to it
			continue
		}
		must(t, err)
		if !strings.Contains(out, ": 0 findings, ") {
			t.Fatalf("fsck: %s", out)
		}
		if strings.Contains(out, "from the beginning") {
			return
		}
		if delay == 5*time.Second {
			t.Fatalf("fsck did not begin again: %s", out)
		}
	}
}
