package mount

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestRemovedDirectoryStaysOpen: a program that has a directory open can still look at it after it
// was removed, or replaced by a rename, also when the kernel has forgotten its attributes.
func TestRemovedDirectoryStaysOpen(t *testing.T) {
	m := newCluster(t, 1).mount(Options{AttrTimeout: time.Millisecond, EntryTimeout: time.Millisecond})
	for _, c := range []struct {
		name   string
		remove func(dir string) error
	}{
		{"rmdir", os.Remove},
		{"rename", func(dir string) error {
			if err := os.Mkdir(dir+".new", 0o700); err != nil {
				return err
			}
			return syscall.Rename(dir+".new", dir)
		}},
	} {
		dir := filepath.Join(m.Dir(), c.name)
		must(t, os.Mkdir(dir, 0o750))
		f := open(t, dir, os.O_RDONLY)
		must(t, c.remove(dir))
		time.Sleep(20 * time.Millisecond)
		var st syscall.Stat_t
		must(t, syscall.Fstat(int(f.Fd()), &st))
		if st.Nlink != 0 || st.Mode != syscall.S_IFDIR|0o750 {
			t.Errorf("%s: mode %o with %d links", c.name, st.Mode, st.Nlink)
		}
		must(t, f.Close())
	}
	must(t, waitFor(func() bool {
		m.bridge.removed.mu.Lock()
		defer m.bridge.removed.mu.Unlock()
		return len(m.bridge.removed.attrs) == 0
	}))
}
