package client

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestTimeOfAClosedFileIsClaimed: a large file is appended to under a lease and closed, and before
// the service hears of that it is restarted. Others see when it was written as they did before:
// whoever asks for it waits until it is told. Which version the data of the file has at the service
// its writer need not know: it has heard of none, of an earlier one only, or not of its own last.
func TestTimeOfAClosedFileIsClaimed(t *testing.T) {
	ctx := context.Background()
	nothing := func(*wired, *FS, *FS, *File) {}
	for name, x := range map[string]struct {
		before func(c *wired, fs, other *FS, f *File) // it is opened
		during func(c *wired, fs, other *FS, f *File) // that
	}{
		"new here": {nothing, nothing},
		"changed elsewhere": {func(_ *wired, fs, other *FS, f *File) {
			appendAndClose(t, fs, f.Ino())
			appendAndClose(t, other, f.Ino())
		}, nothing},
		"told": {nothing, func(_ *wired, _, _ *FS, f *File) {
			_, err := f.Append(ctx, []byte("before"))
			must(t, err)
			must(t, f.Sync(ctx))
		}},
		"told without an answer": {nothing, func(c *wired, fs, _ *FS, f *File) {
			a, err := f.Stat(ctx)
			must(t, err)
			_, err = c.meta.Commit(ctx, fs.trusted(), meta.Change{Ino: a.Ino, Size: a.Size,
				TruncSeq: a.TruncSeq, Mtime: a.Mtime}, false)
			must(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newWired(t, 2)
			fs, other := c.dial(""), c.dial("")
			f, err := other.Create(ctx, "/f")
			must(t, err)
			write(t, f, pattern(3*meta.SmallMax, 1), 0)
			must(t, f.Close(ctx))
			other.flushEndings(ctx)
			x.before(c, fs, other, f)
			set := time.Unix(977542240, 477542240)
			must(t, fs.Chtimes(ctx, "/f", set, set))

			must(t, fs.endings.round.take(ctx)) // whoever closes files stands still
			f, err = fs.OpenIno(ctx, meta.Cred{}, f.Ino(), meta.OpenWrite)
			must(t, err)
			x.during(c, fs, other, f)
			_, err = f.Append(ctx, []byte("at the end"))
			must(t, err)
			if !f.WritesAlone() {
				t.Fatal("it was not written under a lease")
			}
			must(t, f.Close(ctx))
			c.restartMeta()
			a, err := other.GetAttr(ctx, meta.Cred{}, f.Ino())
			must(t, err)
			own, err := fs.GetAttr(ctx, meta.Cred{}, f.Ino())
			must(t, err)
			if a.Size != own.Size || a.Mtime != own.Mtime || a.Mtime == meta.TimeOf(set) {
				t.Errorf("another client sees %d bytes of %v, this one %d of %v", a.Size, a.Mtime,
					own.Size, own.Mtime)
			}
			fs.endings.round.giveBack()
		})
	}
}

// appendAndClose appends to a file, and has the service know of it.
func appendAndClose(t *testing.T, fs *FS, ino meta.Ino) {
	t.Helper()
	ctx := context.Background()
	f, err := fs.OpenIno(ctx, meta.Cred{}, ino, meta.OpenWrite)
	must(t, err)
	_, err = f.Append(ctx, []byte("more"))
	must(t, err)
	must(t, f.Close(ctx))
	fs.flushEndings(ctx)
}

// TestRecalledBeforeTheClaimIsAnswered: a lease is claimed, and recalled again before the answer to
// the claim is read. The cache hears of the recall first, and of what this client does itself: the
// lease was given back all the same, and what was written under it is told before it goes back.
func TestRecalledBeforeTheClaimIsAnswered(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	fs, other := c.client(Options{}), c.client(Options{})
	f := create(t, fs, "f", 1)
	write(t, f, pattern(3*meta.SmallMax, 1), 0)
	if !f.WritesAlone() {
		t.Fatal("it has no lease")
	}
	tok := fs.cache.Begin()
	f.node.drop(true)
	fs.deferral.leaves(fs.cache, f.Ino())
	f.node.regained(fs, tok, fs.leases.lives(), 0)
	a, err := other.GetAttr(ctx, meta.Cred{}, f.Ino())
	must(t, err)
	own, err := fs.GetAttr(ctx, meta.Cred{}, f.Ino())
	must(t, err)
	if a.Size != own.Size || a.Mtime != own.Mtime {
		t.Errorf("another client sees %d bytes of %v, this one %d of %v", a.Size, a.Mtime, own.Size,
			own.Mtime)
	}
	must(t, f.Close(ctx))
}

// TestRecalledAndToldWhileClaiming: what was written is told by a program that syncs, and the lease
// goes back, before the answer to the claim is read, which says that it is there.
func TestRecalledAndToldWhileClaiming(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	f := create(t, fs, "f", 1)
	write(t, f, pattern(3*meta.SmallMax, 1), 0)
	tok := fs.cache.Begin()
	f.node.drop(true)
	must(t, f.Sync(context.Background()))
	if f.node.leaving(fs, true) {
		t.Error("something is to be told")
	}
	f.node.regained(fs, tok, fs.leases.lives(), 0)
	if f.WritesAlone() {
		t.Error("a lease that has gone back counts as held")
	}
	must(t, f.Close(context.Background()))
}
