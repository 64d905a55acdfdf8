package systest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// busyMax is what a busy host may add to a wait.
const busyMax = 20 * time.Second

// TestHolderOfLeasesIsStopped: a mount that knows a directory, and has written a small file that it
// has open, is stopped. Another mount waits once for as long as leases last, and does everything
// then. When the first one goes on it sees what was done, and what it had not told does not cover
// it.
func TestHolderOfLeasesIsStopped(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	held, pid := c.mountProcess(t)
	f := holdLeases(t, held)
	defer f.Close()
	_, err := f.WriteAt([]byte("not told"), 0)
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	began := time.Now()
	changeHeld(t, c.mnt)
	time.Sleep(soak(0, time.Minute))
	must(t, syscall.Kill(pid, syscall.SIGCONT))
	t.Logf("stopped for %v", time.Since(began))
	if err := f.Sync(); err != nil {
		t.Logf("what was written before: %v", err) // it was not told in time
	}
	seeChanged(t, held)
	seeChanged(t, c.mnt)
}

// TestHolderOfLeasesIsKilled: the same with one that does not come back.
func TestHolderOfLeasesIsKilled(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	held, pid := c.mountProcess(t)
	f := holdLeases(t, held)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	_ = f.Close()
	t.Cleanup(func() { _ = unix.Unmount(held, unix.MNT_DETACH) })
	changeHeld(t, c.mnt)
	seeChanged(t, c.mnt)
}

// holdLeases has a mount know a directory, names in it that are there and one that is not, and a
// small file that it writes.
func holdLeases(t *testing.T, mnt string) *os.File {
	t.Helper()
	dir := filepath.Join(mnt, "d")
	must(t, os.Mkdir(dir, 0o755))
	// Both are synced: what a mount has not told yet when it is killed is lost.
	old, err := os.Create(filepath.Join(dir, "old"))
	must(t, err)
	_, err = old.WriteString("old")
	must(t, err)
	must(t, old.Sync())
	must(t, old.Close())
	f, err := os.OpenFile(filepath.Join(dir, "small"), os.O_CREATE|os.O_RDWR, 0o644)
	must(t, err)
	_, err = f.WriteString("told")
	must(t, err)
	must(t, f.Sync())
	_, err = os.ReadDir(dir)
	must(t, err)
	if _, err := os.Stat(filepath.Join(dir, "absent")); !os.IsNotExist(err) {
		t.Fatalf("absent: %v", err)
	}
	return f
}

// changeHeld changes all of it through another mount.
func changeHeld(t *testing.T, mnt string) {
	t.Helper()
	dir := filepath.Join(mnt, "d")
	began := time.Now()
	must(t, os.WriteFile(filepath.Join(dir, "absent"), []byte("here"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "small"), []byte("other data"), 0o644))
	must(t, os.Rename(filepath.Join(dir, "old"), filepath.Join(dir, "new")))
	took := time.Since(began)
	t.Logf("the other mount took %v", took)
	if limit := 5*time.Second + busyMax; took > limit {
		t.Errorf("leases last 5 s, and the other mount took %v", took)
	}
}

// seeChanged looks at what changeHeld has done.
func seeChanged(t *testing.T, mnt string) {
	t.Helper()
	dir := filepath.Join(mnt, "d")
	for name, want := range map[string]string{"absent": "here", "small": "other data", "new": "old"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", filepath.Join(dir, name), got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "old")); !os.IsNotExist(err) {
		t.Errorf("old: %v", err)
	}
}
