package mount

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFallocateChangesTheTime: also where there is nothing to punch, as on a local file system.
func TestFallocateChangesTheTime(t *testing.T) {
	name := filepath.Join(newMount(t), "f")
	old := time.Unix(1000, 0)
	for _, off := range []int64{100, 20000} { // the second one behind the end
		must(t, os.WriteFile(name, pattern(10000, 1), 0o644))
		must(t, os.Chtimes(name, old, old))
		f := open(t, name, os.O_RDWR)
		must(t, unix.Fallocate(int(f.Fd()), punchMode, off, 100))
		must(t, f.Close())
		info, err := os.Stat(name)
		must(t, err)
		if !info.ModTime().After(old) || info.Size() != 10000 {
			t.Errorf("at %d: changed at %v, %d bytes", off, info.ModTime(), info.Size())
		}
	}
}
