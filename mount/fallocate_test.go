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
	for _, mode := range []uint32{unix.FALLOC_FL_ZERO_RANGE,
		unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE} {
		must(t, os.WriteFile(name, pattern(10000, 1), 0o644))
		must(t, os.Chtimes(name, old, old))
		f := open(t, name, os.O_RDWR)
		off := int64(0)
		if mode&unix.FALLOC_FL_PUNCH_HOLE != 0 {
			off = 20000 // behind the end
		}
		must(t, unix.Fallocate(int(f.Fd()), mode, off, 100))
		must(t, f.Close())
		info, err := os.Stat(name)
		must(t, err)
		if !info.ModTime().After(old) || info.Size() != 10000 {
			t.Errorf("mode %d: changed at %v, %d bytes", mode, info.ModTime(), info.Size())
		}
	}
}
