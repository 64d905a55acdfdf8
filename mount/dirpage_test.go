package mount

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// TestOpenedBehindPage: a page of a directory that was read before a file was opened, or locked,
// says nothing of the file any more.
func TestOpenedBehindPage(t *testing.T) {
	c := newCluster(t, 1)
	m := c.mount(Options{AttrTimeout: time.Hour})
	q := filepath.Join(c.mount(Options{}).Dir(), "f")
	must(t, os.WriteFile(q, pattern(100<<10, 1), 0o644))
	p := filepath.Join(m.Dir(), "f")
	f := open(t, p, os.O_RDONLY)
	ino := m.bridge.ino(inoOf(t, f))
	for name, use := range map[string]func(){
		"open": func() { open(t, p, os.O_RDONLY) },
		"lock": func() { must(t, unix.Flock(int(f.Fd()), unix.LOCK_SH)) },
	} {
		d := &directory{ino: m.bridge.fs.Root()}
		at := m.bridge.touched.now()
		_, err := d.rest(t.Context(), m.bridge, 0, true)
		must(t, err)
		g := open(t, q, os.O_WRONLY)
		_, err = g.WriteAt([]byte(name), 200<<10)
		must(t, err)
		must(t, g.Close())
		use()
		if !m.bridge.touched.since(at, ino) {
			t.Errorf("%s: the kernel is told what the page says", name)
		}
	}
}

func inoOf(t *testing.T, f *os.File) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	if st.Ino == fuse.FUSE_ROOT_ID {
		t.Fatal("it is the root")
	}
	return st.Ino
}
