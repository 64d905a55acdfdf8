package mount

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// TestKilledInClose: a program that is killed in close(2) while its data is on its way to a server
// that is away keeps its locks until the data has arrived, and no longer.
func TestKilledInClose(t *testing.T) {
	c := newCluster(t, 1)
	dead := exec.Command("true") // before data is on its way, which a new process waits for
	must(t, dead.Run())
	m, other := c.mount(Options{}), c.mount(Options{})
	f := open(t, filepath.Join(m.Dir(), "f"), os.O_CREATE|os.O_RDWR)
	const first, second = 100 << 10, 5 << 10
	_, err := f.Write(pattern(first, 1))
	must(t, err)
	must(t, fcntlLock(f, unix.F_SETLK, unix.F_WRLCK, 0, 0))
	back := make(chan struct{})
	returns := sync.OnceFunc(func() { close(back) })
	defer returns()
	c.data.away.Store(&back)
	_, err = f.Write(pattern(second, 2))
	must(t, err)
	began := time.Now() // who opens the file elsewhere does not wait for that server
	g := open(t, filepath.Join(other.Dir(), "f"), os.O_RDWR)
	if d := time.Since(began); d > c.client().LeaseTime() {
		t.Errorf("it took %v to open the file, longer than a lease", d)
	}
	m.bridge.files.mu.Lock()
	in := &fuse.FlushIn{Fh: m.bridge.files.last.Load()}
	m.bridge.files.mu.Unlock()
	own, _ := m.bridge.files.get(in.Fh)
	in.LockOwner = own.owners.list()[0]
	in.Pid = uint32(dead.Process.Pid)
	cancel, done := make(chan struct{}), make(chan struct{})
	close(cancel)
	go func() {
		defer close(done)
		if st := m.bridge.Flush(cancel, in); st != fuse.EINTR {
			t.Errorf("it was not killed: %v", st)
		}
	}()
	for range 50 {
		time.Sleep(10 * time.Millisecond)
		if err := fcntlLock(g, unix.F_OFD_SETLK, unix.F_WRLCK, 0, 0); err != unix.EAGAIN {
			t.Fatalf("locked while data is on its way: %v", err)
		}
	}
	returns()
	eventually(t, func() error { return fcntlLock(g, unix.F_OFD_SETLK, unix.F_WRLCK, 0, 0) })
	equalFile(t, g.Name(), append(pattern(first, 1), pattern(second, 2)...))
	<-done
	if left := own.owners.list(); len(left) != 0 {
		t.Errorf("owners without locks: %v", left)
	}
}
