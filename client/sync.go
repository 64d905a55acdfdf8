package client

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/stripe"
)

// Sync returns when everything that was acknowledged before, through any handle of this client,
// closed ones too, is on stable storage: data, size and names. If a server has lost writes that it
// does not take again, or cannot sync, it fails; that error is reported once by every handle that
// was open, because the data behind it must be written again.
func (f *File) Sync(ctx context.Context) error {
	if _, err := f.live(); err != nil {
		return err
	}
	small := f.node.small.Load()
	err := f.syncData(ctx)
	if err == nil && !f.fixed {
		err = f.commitSynced(ctx, small)
	}
	if lost := f.unreported(); lost != nil {
		return lost
	}
	return errs.Wrap("client.Sync", "", err)
}

// commitSynced is commit to stable storage. Where the file was small before, another handle may
// have moved it out meanwhile: then the data lies at the I/O servers, which have not synced it.
func (f *File) commitSynced(ctx context.Context, small bool) error {
	err := f.fs.commit(ctx, f.node, true)
	if err == nil && small && !f.node.small.Load() {
		err = f.syncData(ctx)
	}
	return err
}

// syncData syncs the stripes. Servers let only those sync who may write; for a handle that may
// not, the file is opened once more.
func (f *File) syncData(ctx context.Context) error {
	if f.flags&meta.OpenWrite != 0 {
		return f.syncStripes(ctx)
	}
	if f.fixed || len(f.node.unsyncedStripes(layout.WidthMax)) == 0 {
		return nil // nobody syncs a volume through a handle that cannot write to it
	}
	w, err := f.fs.openUpkeep(ctx, f.node.ino)
	if err != nil {
		return err
	}
	err = w.syncStripes(ctx)
	cerr := w.Close(ctx)
	if k := errs.KindOf(cerr); err == nil && k != errs.IO && k != errs.NoSpace && k != errs.Quota {
		err = cerr // lost writes, which are of these kinds, are this handle's to report
	}
	return err
}

// syncStripes syncs every server that was written to since the last sync, all at once.
func (f *File) syncStripes(ctx context.Context) error {
	return f.settle(ctx, func(ctx context.Context, g *grant, seq uint64) error {
		todo := f.node.unsyncedStripes(g.layout.Width())
		failed := make([]error, len(todo))
		var wg sync.WaitGroup
		for i := 1; i < len(todo); i++ {
			wg.Go(func() { failed[i] = f.syncStripe(ctx, g, seq, todo[i]) })
		}
		if len(todo) > 0 {
			failed[0] = f.syncStripe(ctx, g, seq, todo[0])
		}
		wg.Wait()
		err := worst(failed)
		if err == nil && len(todo) == g.layout.Width() {
			f.node.pastSynced()
		}
		return err
	})
}

func (f *File) syncStripe(ctx context.Context, g *grant, seq uint64, s int) error {
	t := f.target(g, seq, s)
	was := f.node.unsyncedAt(s)
	mark, err := f.fs.data.Sync(ctx, t)
	switch k := errs.KindOf(err); {
	case k == errs.OK:
		f.inherited(t.Server, s, was, mark.Verifier)
		f.node.synced(s, was)
	case k != errs.Stale && k != errs.Expired && !k.Passing():
		// The server tried and failed: nobody knows what reached the disk.
		f.node.lose(errs.Wrap("client.Sync", serverName(t.Server), err))
	}
	return err
}

// unsyncedStripes lists those of a file that has width of them: before it was striped anew it may
// have had more, which were never written to.
func (n *inode) unsyncedStripes(width int) []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []int
	for i := range n.stripes[:min(width, len(n.stripes))] {
		if n.stripes[i].pending || n.unknown {
			list = append(list, i)
		}
	}
	return list
}

// pastSynced notes that all stripes were synced: what was there before this record is durable.
func (n *inode) pastSynced() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unknown = false
}

func (n *inode) unsyncedAt(s int) unsynced {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stripes[s]
}

// synced notes the end of a sync that began when the stripe's state was was. Writes that were
// acknowledged since then stay unsynced.
func (n *inode) synced(s int, was unsynced) {
	n.mu.Lock()
	defer n.mu.Unlock()
	u := &n.stripes[s]
	if u.count == was.count {
		u.pending = false
	}
}

// Punch makes a range a hole that reads as zeroes. The size does not change; what lies behind it is
// left alone. On a volume that is shared it is durable when it returns.
func (f *File) Punch(ctx context.Context, off, n int64) error {
	if err := f.room("client.Punch", off, min(n, max(f.Size()-off, 0))); err != nil {
		return err
	}
	if n <= 0 {
		return nil
	}
	done, err := f.writeSmall(ctx, writing, 0, -1, func(data []byte) {
		clear(data[min(off, int64(len(data))):min(off+n, int64(len(data)))])
	})
	if done {
		return errs.Wrap("client.Punch", "", err)
	}
	end := min(off+n, f.Size())
	switch {
	case off >= end: // there is nothing to punch, but a file that was asked to change has changed
		f.finish(writing, 0, 0, f.node.sequence())
		return nil
	}
	err = f.settle(ctx, func(ctx context.Context, g *grant, seq uint64) error {
		return f.eachStripe(g, func(s int) error { return f.punchStripe(ctx, g, seq, s, off, end) })
	})
	if err == nil {
		err = f.punched(ctx, off, end)
	}
	return errs.Wrap("client.Punch", "", err)
}

// punched takes note of a punch. The metadata service is told at once, which happens once for a
// file: the one who punches may keep it open for days, and others want to see the space.
func (f *File) punched(ctx context.Context, off, end int64) error {
	f.finish(writing, 0, 0, f.node.sequence())
	if f.fixed {
		return nil
	}
	f.node.mu.Lock()
	f.node.gaps.add(off, end)
	f.node.mu.Unlock()
	return f.fs.tellHoles(ctx, f.node)
}

// punchStripe punches what a stripe holds of [off, end): one contiguous range of its object.
func (f *File) punchStripe(ctx context.Context, g *grant, seq uint64, s int, off, end int64) error {
	lo, hi := g.layout.ObjectSize(s, off), g.layout.ObjectSize(s, end)
	if lo == hi {
		return nil
	}
	t, durability := f.target(g, seq, s), stripe.Volatile
	if f.shared {
		durability = stripe.Durable
	}
	_, err := f.fs.data.Punch(ctx, t, lo, hi-lo, durability)
	if err == nil && !f.shared {
		f.node.acked(s)
	}
	return err
}

// eachStripe runs fn for all stripes at once.
func (f *File) eachStripe(g *grant, fn func(s int) error) error {
	failed := make([]error, g.layout.Width())
	var wg sync.WaitGroup
	for s := 1; s < len(failed); s++ {
		wg.Go(func() { failed[s] = fn(s) })
	}
	failed[0] = fn(0)
	wg.Wait()
	return worst(failed)
}
