package device

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLockOfTheDead: who had the lock is gone, and the kernel lets go of it later than it usually
// does, after it was seen to be held and before somebody has looked who holds it.
func TestLockOfTheDead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blocks")
	theirs, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(theirs.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	ours, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	begin := time.Now()
	err = (&File{f: ours}).lockFrom(func() int {
		if time.Since(begin) < lingers/8 {
			return gone.Process.Pid
		}
		_ = theirs.Close()
		return 0
	})
	if err != nil {
		t.Fatalf("after %v: %v", time.Since(begin), err)
	}
}
