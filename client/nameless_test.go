package client

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// whole is what is in a file.
func whole(t *testing.T, fs *FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(t.Context(), path)
	must(t, err)
	defer f.Close(t.Context())
	return contents(t, f)
}

// inodeGone waits until the service has forgotten an inode.
func inodeGone(t *testing.T, fs *FS, ino meta.Ino) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := fs.svc.GetAttr(t.Context(), meta.Caller{}, ino)
		if errs.KindOf(err) == errs.NotFound {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("inode %d is still there: %v", ino, err)
		}
	}
}

// TestCreateTemp: a file without a name is written, read and synced like others, is gone when it is
// closed, and stays if it was given a name.
func TestCreateTemp(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	fs, other := c.client(Options{}), c.client(Options{})
	ctx := t.Context()
	must(t, fs.Mkdir(ctx, "/d", 0o755))
	for _, size := range []int{0, 10, meta.SmallMax + 1, 1 << 20} {
		data := bytes.Repeat([]byte{7}, size)
		for _, name := range []string{"", "/d/f"} {
			f, err := fs.CreateTemp(ctx, "/d", 0o600)
			must(t, err)
			write(t, f, data, 0)
			must(t, f.Sync(ctx))
			if a, err := f.Stat(ctx); err != nil || a.Nlink != 0 || a.Size != int64(size) {
				t.Fatalf("%+v, %v", a, err)
			}
			if name != "" {
				must(t, f.Link(ctx, name))
				if k := errs.KindOf(f.Link(ctx, name)); k != errs.Exists {
					t.Fatalf("linked twice: %v", k)
				}
				if a, err := f.Stat(ctx); err != nil || a.Nlink != 1 {
					t.Fatalf("%+v, %v", a, err)
				}
			}
			must(t, f.Close(ctx))
			if name == "" {
				inodeGone(t, fs, f.Ino())
				continue
			}
			for _, who := range []*FS{fs, other} {
				if got := whole(t, who, name); !bytes.Equal(got, data) {
					t.Fatalf("%d bytes, want %d, or other ones", len(got), size)
				}
			}
			must(t, fs.Remove(ctx, name))
		}
	}
	_, err := fs.CreateTemp(ctx, "/nowhere", 0o600)
	if errs.KindOf(err) != errs.NotFound {
		t.Fatalf("%v", err)
	}
}

// TestTempOpenedAgain: a second handle keeps it, though its data is known under a lease.
func TestTempOpenedAgain(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	listened(t, fs)
	ctx := t.Context()
	f, err := fs.CreateTemp(ctx, "/", 0o600)
	must(t, err)
	write(t, f, []byte("small"), 0)
	second, err := fs.OpenIno(ctx, meta.Cred{}, f.Ino(), meta.OpenRead)
	must(t, err)
	must(t, f.Close(ctx))
	fs.flushEndings(ctx)
	must(t, second.Link(ctx, "/f"))
	must(t, second.Close(ctx))
	if got := whole(t, fs, "/f"); string(got) != "small" {
		t.Fatalf("%q", got)
	}
}

// TestTempIsGoneWithItsClient: a client that ends without closing leaves nothing behind.
func TestTempIsGoneWithItsClient(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs, dead := c.client(Options{}), c.client(Options{})
	f, err := dead.CreateTemp(t.Context(), "/", 0o600)
	must(t, err)
	write(t, f, []byte("data"), 0)
	must(t, dead.svc.EndSession(t.Context(), dead.sess.Load().id))
	inodeGone(t, fs, f.Ino())
}
