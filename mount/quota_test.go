package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/meta"
)

// TestQuotaOnTheMount: a program hears of a full tree from its write, at the right byte, and df of
// the directory shows the tree.
func TestQuotaOnTheMount(t *testing.T) {
	const limit = 5 << 20
	c := newCluster(t, 2)
	dir := filepath.Join(c.mount(Options{}).Dir(), "d")
	must(t, os.Mkdir(dir, 0o777))
	a, err := c.meta.Lookup(t.Context(), meta.Caller{}, meta.RootIno, "d")
	must(t, err)
	q, err := c.meta.SetQuota(t.Context(), meta.Caller{}, a.Ino, meta.Usage{Bytes: limit, Inodes: 3})
	must(t, err)
	for end := time.Now().Add(time.Minute); q.Counting && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		q, err = c.meta.GetQuota(t.Context(), meta.Caller{}, a.Ino)
		must(t, err)
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	must(t, err)
	p, written := pattern(100_000, 1), 0
	for err == nil {
		var n int
		n, err = f.Write(p)
		written += n
	}
	if !errors.Is(err, unix.EDQUOT) || written != limit {
		t.Fatalf("%d bytes of %d were written, then %v", written, limit, err)
	}
	must(t, f.Close())
	g, err := os.Create(filepath.Join(dir, "g"))
	must(t, err)
	if _, err := g.Write(p[:1]); !errors.Is(err, unix.EDQUOT) {
		t.Fatalf("another file: %v", err)
	}
	if err := g.Truncate(1); !errors.Is(err, unix.EDQUOT) {
		t.Fatalf("extended: %v", err)
	}
	must(t, g.Close())
	if _, err := os.Create(filepath.Join(dir, "h")); !errors.Is(err, unix.EDQUOT) {
		t.Fatalf("one file too many: %v", err)
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	if st.Blocks*uint64(st.Bsize) != limit || st.Bfree != 0 || st.Files != 3 || st.Ffree != 0 {
		t.Fatalf("statfs of the tree: %+v", st)
	}
	must(t, os.Truncate(filepath.Join(dir, "f"), limit/2))
	must(t, unix.Statfs(dir, &st))
	if st.Bfree*uint64(st.Bsize) != limit/2 {
		t.Fatalf("statfs of the tree: %+v", st)
	}
	must(t, unix.Statfs(filepath.Dir(dir), &st))
	if st.Blocks*uint64(st.Bsize) == limit || st.Ffree < 3 {
		t.Fatalf("statfs outside: %+v", st)
	}
	err = os.Rename(filepath.Join(dir, "f"), filepath.Join(filepath.Dir(dir), "f"))
	must(t, err)
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o777))
	must(t, os.Remove(filepath.Join(dir, "g")))
	must(t, os.WriteFile(filepath.Join(dir, "sub", "x"), nil, 0o644))
	err = os.Rename(filepath.Join(dir, "sub"), filepath.Join(filepath.Dir(dir), "sub"))
	if !errors.Is(err, unix.EXDEV) {
		t.Fatalf("a directory leaves the tree: %v", err)
	}
}
