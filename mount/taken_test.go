package mount

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// TestLostPagesAreNotShown: data was taken from a program and could not be stored. Whoever reads
// the file afterwards sees what is stored.
func TestLostPagesAreNotShown(t *testing.T) {
	c := newCluster(t, 2)
	name := filepath.Join(c.mount(Options{}).Dir(), "f")
	const piece = 64 << 10
	was, is := bytes.Repeat([]byte{'a'}, piece), bytes.Repeat([]byte{'b'}, piece)
	must(t, os.WriteFile(name, bytes.Repeat(was, 4), 0o644))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	said := false
	for i := range 4 {
		if i == 2 {
			must(t, f.Sync())
			fail := errs.New(errs.NoSpace, "disk", "", nil)
			c.data.write.Store(&fail)
		}
		_, err := f.Write(is)
		if i == 3 && errors.Is(err, unix.ENOSPC) { // the one before was stored meanwhile, or was not
			said = true
			continue
		}
		must(t, err)
	}
	if err := f.Sync(); !said || err != nil {
		want(t, err, unix.ENOSPC)
	}
	c.data.write.Store(nil)
	must(t, f.Close())
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got, err := os.ReadFile(name)
		must(t, err)
		if bytes.Equal(got[3*piece:], was) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the lost part shows %q", got[3*piece:3*piece+8])
		}
	}
}

// TestUnmountWhileALockIsWaitedFor: a program waits for a lock that another mount holds, without a
// limit. It does not keep the mount that is taken from it.
func TestUnmountWhileALockIsWaitedFor(t *testing.T) {
	c := newCluster(t, 2)
	holds, waits := c.mount(Options{}), c.mount(Options{})
	must(t, os.WriteFile(filepath.Join(holds.Dir(), "f"), nil, 0o644))
	held, err := os.Open(filepath.Join(holds.Dir(), "f"))
	must(t, err)
	defer held.Close()
	must(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	f, err := os.Open(filepath.Join(waits.Dir(), "f"))
	must(t, err)
	defer f.Close()
	done := make(chan error, 1)
	go func() { done <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	time.Sleep(300 * time.Millisecond)
	must(t, waits.Unmount())
	select {
	case err := <-done:
		if err == nil {
			t.Error("the lock was granted twice")
		}
	case <-time.After(20 * time.Second):
		t.Error("the program waits on")
	}
}

// TestPagesOfASoleWriter: a file that only this mount writes keeps its pages when it is opened once
// more, however long it has grown meanwhile.
func TestPagesOfASoleWriter(t *testing.T) {
	v := newVersions()
	v.note(&meta.Attr{Ino: 7, DataVersion: 3, TruncSeq: 1, Size: 10})
	a := meta.Attr{Ino: 7, DataVersion: 3, TruncSeq: 1, Size: 20, Writers: true}
	if v.current(&a, false) || !v.current(&a, true) {
		t.Error("pages are kept where others write, or dropped where nobody does")
	}
	if a.DataVersion++; v.current(&a, true) {
		t.Error("pages of another version are kept")
	}
}
