package client

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	iodremote "github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mem/regcache"
	"github.com/sluice-storage/sluice/meta"
)

// keeper is a data service that keeps unsynced writes: iod/remote. What it needs of the client in
// turn, fresh rights and somebody to tell of losses, Dial hands to it.
type keeper interface {
	SyncFile(ctx context.Context, file uint64) error
	SyncAll(ctx context.Context) error
	Stats() iodremote.Stats
}

// Stats tell what the client keeps of unsynced writes, and what became of it; and how callers'
// memory was reached where a provider moves registered memory only.
type Stats struct {
	iodremote.Stats
	Registered regcache.Stats
	Deferred   DeferredStats // names that are told later
}

// Stats of the client; zero where its data service keeps nothing, or registers nothing.
func (fs *FS) Stats() (s Stats) {
	s.Deferred = fs.Deferred()
	if fs.keep != nil {
		s.Stats = fs.keep.Stats()
	}
	if fs.buffers != nil {
		s.Registered = fs.buffers.registered()
	}
	return s
}

// syncKept makes everything durable that is kept, of files that are closed too.
func (fs *FS) syncKept(ctx context.Context) error {
	if fs.keep == nil {
		return nil
	}
	return fs.keep.SyncAll(ctx)
}

// syncBeforeCut makes durable what is kept of a file that is about to be truncated to size. A
// write from before the truncation is refused after it, and rightly so where it lies behind the
// cut; what lies before the cut must not depend on being sent again.
//
// A truncation by another client is not known here in time. The server has everything that it
// acknowledged in its store before it cuts, and the cut is durable. Only what a crash has taken
// from it, and has not been sent again before the cut, comes too late: that is told as lost.
func (fs *FS) syncBeforeCut(ctx context.Context, ino meta.Ino, size int64) error {
	if fs.keep == nil || size == 0 {
		return nil
	}
	return fs.keep.SyncFile(ctx, uint64(ino))
}

// lost takes the news that a server has lost kept writes of a file and does not take them again.
func (fs *FS) lost(t iod.Target, err error) {
	if n := fs.peek(meta.Ino(t.Object.File)); n != nil {
		n.lose(err)
		return
	}
	fs.opts.Logger.Error("unsynced writes to a file that is closed were lost",
		"ino", t.Object.File, "err", err)
}

// renewTarget gets fresh rights to an object of which something is kept. The file may be closed:
// then it is opened for a moment. errs.NotFound says that it is gone, and with it what was written.
func (fs *FS) renewTarget(ctx context.Context, t *iod.Target) error {
	ino, stripe := meta.Ino(t.Object.File), int(t.Object.Stripe)
	f := fs.writer(ino)
	if f == nil {
		w, err := fs.openUpkeep(ctx, ino)
		if err != nil {
			return err
		}
		defer w.Discard(ctx)
		f = w
	} else if g := f.grant.Load(); stripe < len(g.caps) && g.caps[stripe] == t.Cap {
		if err := f.renewFrom(ctx, g); err != nil {
			return err
		}
	}
	if _, err := fs.askAttr(ctx, meta.Cred{}, ino); err != nil {
		return err
	}
	g, err := f.live()
	if err != nil {
		return err
	}
	if stripe >= len(g.caps) {
		return errs.Newf(errs.Fenced, "client.Renew", "", "the file has %d stripes now", len(g.caps))
	}
	fresh := f.target(g, f.node.sequence(), stripe)
	fresh.How = t.How
	*t = fresh
	return nil
}

// writer finds a handle that may write to a file.
func (fs *FS) writer(ino meta.Ino) *File {
	n := fs.peek(ino)
	if n == nil {
		return nil
	}
	for _, f := range n.opened(meta.OpenWrite) {
		if _, err := f.live(); err == nil {
			return f
		}
	}
	return nil
}

// Discard closes a handle that no program has got, and leaves unreported errors to those that
// programs have.
func (f *File) Discard(ctx context.Context) {
	f.node.mu.Lock()
	seen := f.node.lost.seq
	f.node.mu.Unlock()
	f.mu.Lock()
	f.seen = seen
	f.mu.Unlock()
	if err := f.Close(ctx); err != nil {
		f.fs.opts.Logger.Warn("closing a file that no program has open", "err", err)
	}
}

// arena makes the memory of kept writes: of the kind that servers reach by themselves, where there
// is such.
func (n *network) arena(source mem.Source) func(bytes int) (*mem.Arena, error) {
	return func(bytes int) (*mem.Arena, error) {
		a, err := mem.NewArena(bytes, source)
		if err != nil {
			return nil, err
		}
		attach := n.peers.Attach
		if n.buffers != nil {
			attach = n.buffers.attach
		}
		if err := attach(a); err != nil {
			_ = a.Close() // nobody has seen it
			return nil, err
		}
		n.kept = a
		return a, nil
	}
}
