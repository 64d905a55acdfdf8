package client

import (
	"context"
	"io"
	"testing"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestHeardTruncationIsRead: two clients write a file, so that neither has a lease that could be
// recalled. One of them cuts it, and the other one hears of that by the way: from a listing, a name
// that it looks up, a mode that it sets, another name that it gives. From then on it reads what the
// file is, and nothing behind its end.
func TestHeardTruncationIsRead(t *testing.T) {
	ctx := context.Background()
	for name, hear := range map[string]func(fs *FS) error{
		"listing": func(fs *FS) error {
			return fs.ReadDir(ctx, "/", func(meta.Entry) error { return nil })
		},
		"name": func(fs *FS) error { _, err := fs.Lstat(ctx, "/f"); return err },
		"mode": func(fs *FS) error { return fs.Chmod(ctx, "/f", 0o600) },
		"link": func(fs *FS) error { return fs.Link(ctx, "/f", "/g") },
	} {
		for _, alone := range []bool{true, false} {
			t.Run(name+map[bool]string{true: " alone", false: ""}[alone], func(t *testing.T) {
				c := newCluster(t, 2, store.Options{})
				fs, other := c.client(Options{}), c.client(Options{})
				listened(t, fs)
				f := create(t, fs, "f", 2)
				write(t, f, make([]byte, 5000), 0)
				must(t, f.Sync(ctx))
				g, err := other.OpenIno(ctx, meta.Cred{}, f.Ino(), meta.OpenRead|meta.OpenWrite)
				must(t, err)
				if _, err := f.Stat(ctx); err != nil || f.Doubtful() {
					t.Fatalf("the length is not known after asking: %v", err)
				}
				must(t, g.Truncate(ctx, 1000))
				if alone { // from then on the first one may be lent what it hears
					must(t, g.Close(ctx))
					other.flushEndings(ctx)
				}
				must(t, hear(fs))
				readsTo(t, f, 1000)
			})
		}
	}
}

// readsTo demands that a file is as long for who reads as for who asks, before and after.
func readsTo(t *testing.T, f *File, size int64) {
	t.Helper()
	ctx := context.Background()
	for range 2 {
		n, err := f.ReadAt(ctx, make([]byte, size+10), 0)
		if int64(n) != size || err != io.EOF {
			t.Fatalf("%d bytes were read, %v; want %d", n, err, size)
		}
		if a, err := f.Stat(ctx); err != nil || a.Size != size {
			t.Fatalf("the file has %d bytes, %v; want %d", a.Size, err, size)
		}
	}
}
