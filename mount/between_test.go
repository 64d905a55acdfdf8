package mount

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWritesAreSeenElsewhere: what write(2) has returned for is there for another mount, in the
// file's length and in its data, while the file is open: small, while it grows beyond that, and
// large.
func TestWritesAreSeenElsewhere(t *testing.T) {
	c := newCluster(t, 2)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	for _, each := range []int{700, 5000, 70_000} {
		name := fmt.Sprint("f", each)
		w := open(t, filepath.Join(a, name), os.O_CREATE|os.O_WRONLY)
		var want []byte
		for i := range 40 {
			p := pattern(each+i, byte(i))
			_, err := w.Write(p)
			must(t, err)
			want = append(want, p...)
			if i%3 == 0 {
				continue
			}
			st, err := os.Stat(filepath.Join(b, name))
			must(t, err)
			if st.Size() != int64(len(want)) {
				t.Fatalf("%d bytes are seen after write %d of %d bytes, not %d",
					st.Size(), i, each, len(want))
			}
			if i%3 == 1 {
				continue
			}
			equalFile(t, filepath.Join(b, name), want)
		}
		must(t, w.Close())
	}
}

// TestWritesAreSeenByWhoReads: another mount has the file open, and reads what is overwritten and
// what grows, past its kernel's pages.
func TestWritesAreSeenByWhoReads(t *testing.T) {
	c := newCluster(t, 2)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{Cache: CacheStrict}).Dir()
	want := pattern(200_000, 1)
	must(t, os.WriteFile(filepath.Join(a, "f"), want, 0o600))
	w := open(t, filepath.Join(a, "f"), os.O_RDWR)
	r := open(t, filepath.Join(b, "f"), os.O_RDONLY)
	got := make([]byte, 500_000)
	for i := range 100 {
		p := pattern(3000, byte(i))
		_, err := w.Write(p)
		must(t, err)
		off := i * len(p)
		want = append(want[:off], append(p, want[min(len(want), off+len(p)):]...)...)
		if i%7 == 0 { // or the writer has had no time to hold anything back
			time.Sleep(20 * time.Millisecond)
		}
		n, err := r.ReadAt(got, 0)
		if err != io.EOF {
			t.Fatal(err)
		}
		if !bytes.Equal(got[:n], want) {
			t.Fatalf("after write %d: %d bytes, want %d, or others", i, n, len(want))
		}
	}
}

// TestOpenAgainstRename: a name that another mount renames over all the time can be opened at any
// moment.
func TestOpenAgainstRename(t *testing.T) {
	c := newCluster(t, 1)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	must(t, os.WriteFile(filepath.Join(a, "f"), []byte("0"), 0o600))
	var renames atomic.Int64
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 3 {
		writers.Go(func() {
			tmp := filepath.Join(a, fmt.Sprint("tmp", w))
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := os.WriteFile(tmp, []byte("data"), 0o600); err != nil {
					t.Error(err)
					return
				}
				if err := os.Rename(tmp, filepath.Join(a, "f")); err != nil {
					t.Error(err)
					return
				}
				renames.Add(1)
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for i, failed := 0, 0; i < 2_500 && failed < 3; i++ {
				fd, err := unix.Open(filepath.Join(b, "f"), unix.O_RDONLY, 0)
				if err != nil {
					failed++
					t.Errorf("open %d: %v", i, err)
					continue
				}
				if err := unix.Close(fd); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Wait()
	close(stop)
	writers.Wait()
	t.Logf("10,000 opens, %d renames", renames.Load())
}

// TestTimesSetElsewhereStay: a time that is set by another mount while a large file is open here,
// and was written to, stays until the file is written to again.
func TestTimesSetElsewhereStay(t *testing.T) {
	c := newCluster(t, 2)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	old := time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC)
	for _, writers := range []int{1, 2} {
		name := fmt.Sprint("f", writers)
		w := open(t, filepath.Join(a, name), os.O_CREATE|os.O_RDWR)
		_, err := w.Write(pattern(100_000, 1))
		must(t, err)
		if writers == 2 { // then nobody knows the file alone
			x := open(t, filepath.Join(b, name), os.O_RDWR)
			_, err = x.WriteAt(pattern(10, 1), 0)
			must(t, err)
		}
		for range 4 {
			_, err = w.Write(pattern(1000, 2))
			must(t, err)
		}
		must(t, os.Chtimes(filepath.Join(b, name), old, old))
		is := func(when string, set bool) {
			t.Helper()
			for _, dir := range []string{b, a} {
				st, err := os.Stat(filepath.Join(dir, name))
				must(t, err)
				if st.ModTime().Equal(old) != set {
					t.Errorf("%d writers, %s: %v", writers, when, st.ModTime())
				}
			}
		}
		is("when it was set", true)
		time.Sleep(700 * time.Millisecond) // longer than anything is held back
		is("later", true)
		must(t, w.Sync())
		is("after fsync", true)
		must(t, w.Close())
		is("after close", true)
		w = open(t, filepath.Join(a, name), os.O_RDWR)
		_, err = w.Write([]byte("again"))
		must(t, err)
		must(t, w.Close())
		is("after another write", false)
	}
}
