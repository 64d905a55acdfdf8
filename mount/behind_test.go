package mount

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestServerAwayLeavesDirectoriesAlone: a file whose data is on its way to a server that is away
// does not keep anybody from finding names in its directory, from listing it and from making files
// in it. How long the file is can be seen without waiting.
func TestServerAwayLeavesDirectoriesAlone(t *testing.T) {
	c := newCluster(t, 1)
	dir := c.mount(Options{EntryTimeout: -1}).Dir()
	p := filepath.Join(dir, "f")
	f := open(t, p, os.O_CREATE|os.O_WRONLY)
	const first, second = 100 << 10, 5 << 10
	_, err := f.Write(pattern(first, 1))
	must(t, err)
	back := make(chan struct{})
	returns := sync.OnceFunc(func() { close(back) })
	defer returns()
	c.data.away.Store(&back)
	_, err = f.Write(pattern(second, 2))
	must(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := os.ReadDir(dir)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "g"), nil, 0o644)
		}
		if err == nil {
			err = os.Link(filepath.Join(dir, "g"), filepath.Join(dir, "h"))
		}
		done <- err
	}()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(20 * time.Second):
		t.Error("the directory cannot be used")
		return
	}
	var st unix.Statx_t
	must(t, unix.Statx(unix.AT_FDCWD, p, unix.AT_STATX_DONT_SYNC, unix.STATX_SIZE, &st))
	if st.Size != first+second {
		t.Errorf("%d bytes, want %d", st.Size, first+second)
	}
	returns()
	if st, err := f.Stat(); err != nil || st.Size() != first+second {
		t.Errorf("%v, %v", st, err)
	}
	must(t, f.Close())
	equalFile(t, p, append(pattern(first, 1), pattern(second, 2)...))
}
