package client

import (
	"context"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/seg"
)

// moveOut has the I/O servers keep a small file, through a handle that may write. They may be away:
// where the lease is recalled meanwhile it goes back first, and what was begun is begun anew.
func (fs *FS) moveOut(ctx context.Context, w *File) error {
	return w.node.whileTelling(ctx, func() error { return fs.moveOutTelling(ctx, w) })
}

// moveOutTelling is moveOut for those who have telling. It is tried again where another client was
// first to take the file over, and nothing of this one's is lost.
func (fs *FS) moveOutTelling(ctx context.Context, w *File) error {
	n := w.node
	for try := 0; n.small.Load(); try++ {
		if err := fs.ownTelling(ctx, n); err != nil {
			return err
		}
		if !n.small.Load() {
			return nil
		}
		if n.leftBehind() {
			if err := fs.tell(patient(ctx), n, false); err != nil {
				return err
			}
		}
		spilling, done := n.asks(ctx)
		err := errLeaving
		if spilling.Err() == nil && n.owned(fs) {
			if err = fs.cutLeft(spilling, n); err == nil {
				err = fs.moveOutOnce(ctx, spilling, w)
			}
		}
		done()
		if err != nil && (!overtaken(errs.KindOf(err)) || try >= refreshMax) {
			return errs.Wrap("client.MoveOut", "", err)
		}
	}
	return nil
}

// moveOutRecalled moves a small file out whose lease is being given back, if that can be done in a
// fraction of the time of a lease: whoever waits for the lease must not wait for I/O servers that
// are away, until all leases of this client have run out. The caller has telling, and has told
// everything.
func (fs *FS) moveOutRecalled(ctx context.Context, s *session, w *File) {
	if !w.node.small.Load() || w.node.state() != leaseLeaving || w.node.leftBehind() {
		return // or it is cut first, for who waits
	}
	ctx, cancel := context.WithTimeout(ctx, s.leases/4)
	defer cancel()
	if err := fs.moveOutOnce(ctx, ctx, w); err != nil {
		fs.opts.Logger.Warn("a small file that others want to write could not be moved out",
			"ino", w.node.ino, "err", err)
	}
}

// halfOut tells whether I/O servers may have, or get, something of a file that is still small. Who
// has the lease next must be kept from that. A later truncation has done so.
func (n *inode) halfOut() meta.Spilled {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.halfOutLocked()
}

func (n *inode) halfOutLocked() meta.Spilled {
	if s := n.content.spilled; n.small.Load() && s == meta.SpilledUnder(n.truncSeq) {
		return s
	}
	return 0
}

// leftBehindLocked tells whether I/O servers may have more of a file that is still small than there
// is: what an attempt has left from before a truncation. One of this client itself cuts it there
// only if it is said to do so.
func (n *inode) leftBehindLocked() bool {
	c := &n.content
	return n.small.Load() && c.spilled != 0 &&
		(c.longer || c.spilled < meta.SpilledUnder(n.truncSeq))
}

func (n *inode) leftBehind() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leftBehindLocked()
}

// spills tells whether a truncation of this client has to be carried out at the I/O servers, too.
func (n *inode) spills() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.small.Load() && n.content.spilled != 0
}

// cutSpilled notes that it was.
func (n *inode) cutSpilled(truncSeq uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.content.spilled <= meta.SpilledUnder(truncSeq) {
		n.content.spilled, n.content.longer = 0, false
	}
}

// freeze keeps writes away, or lets them come again, and returns the length.
func (n *inode) freeze(on bool) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.content.frozen = on
	return int64(len(n.content.data))
}

// cutLeft has the I/O servers cut what would be seen behind the end of a file that moves out. The
// caller has telling, and has told everything.
func (fs *FS) cutLeft(ctx context.Context, n *inode) error {
	if !n.leftBehind() {
		return nil
	}
	size := n.freeze(true)
	defer n.freeze(false)
	_, err := fs.askSetAttr(ctx, meta.Cred{}, n.ino, meta.SetSize, meta.Attr{Size: size})
	return err
}

// outLocked takes note of the first answer that says that a file is not small any more. If this
// client has moved it out nothing is left to be told, whether it knows of that or the answer was
// lost: others get the lease with another truncation only, because of what was spilled. If somebody
// else has, what was written here since is lost, whoever has asked. What is just being told may
// have come first: who tells it finds out (giveBackLocked).
func (n *inode) outLocked(a *meta.Attr) {
	if out := n.content.out; out != 0 && out == a.DataVersion && n.content.seq == a.TruncSeq {
		n.dirty, n.taken = false, false
		n.content.version = out
		return
	}
	if n.dirty {
		n.dirty = false
		n.size, n.growth.to, n.gaps = a.Size, 0, gaps{}
		n.loseLocked(errOvertaken())
	}
}

// overtaken tells whether the service knows better than this client whose the file is.
func overtaken(k errs.Kind) bool { return k == errs.Fenced || k == errs.Conflict }

func (n *inode) state() leaseState {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lease.state
}

// moveOutOnce is one attempt. The data is written under a context of its own: what is said to the
// service then takes no time, and is better not left open.
func (fs *FS) moveOutOnce(ctx, spilling context.Context, w *File) error {
	n := w.node
	n.mu.Lock()
	n.content.frozen = true
	before := n.content
	c, _ := n.takeDirtyLocked()
	n.content.spilled = meta.SpilledUnder(c.TruncSeq) // who claims the file meanwhile says so
	n.content.out = before.version + 1
	c.Whole, c.Data, c.Holes, c.Epoch = false, nil, n.gaps.untold(), n.lease.epoch
	c.Size = int64(len(before.data))
	holes := n.gaps.list
	n.content.shared = true
	n.mu.Unlock()

	change := fs.cache.Change().Inode(n.ino)
	err := w.spill(spilling, &before, holes)
	var a meta.Attr
	t, asks := fs.cache.Begin(), err == nil
	if asks {
		a, err = fs.tellMoveOut(ctx, &c, before.version)
	}
	n.mu.Lock()
	n.content.frozen = false
	if err != nil {
		n.content.spilled = max(n.content.spilled, meta.SpilledUnder(c.TruncSeq))
		n.notOutLocked(fs, errs.KindOf(err), asks)
		n.mu.Unlock()
		change.End(cache.Outcome{})
		return err
	}
	if n.taken && a.TruncSeq != c.TruncSeq && fs.cutting.Load() == 0 {
		n.loseLocked(errOvertaken()) // it was out already: somebody else has had the lease
	}
	left := n.gaps
	if a.TruncSeq == n.truncSeq || a.Lease != meta.LeaseNone {
		n.learnLocked(&a) // otherwise a truncation may be under way: see hear
	}
	n.small.Store(false)
	n.movedLocked()
	n.gaps = left
	n.toldLocked(&c)
	n.content.version = a.DataVersion
	n.grantedLocked(fs, t, &a, byTeller)
	n.mu.Unlock()
	change.End(cache.Outcome{Attrs: []*meta.Attr{&a}})
	if a.DataVersion == before.version+1 && a.TruncSeq == c.TruncSeq { // it was not out already
		fs.versioned(&a)
	}
	return nil
}

// tellMoveOut says to the service that a file has moved out. A program that does not wait for it
// any longer must not leave it open what became of the file.
func (fs *FS) tellMoveOut(ctx context.Context, c *meta.Change, version uint64) (meta.Attr, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callMax(fs.opts.WaitMax))
	defer cancel()
	defer context.AfterFunc(fs.life, cancel)()
	return fs.svc.MoveOut(ctx, fs.trusted(), *c, version)
}

// notOutLocked settles an attempt that has failed. asked: the service may have done it all the
// same; then nothing more is written before it has been asked for the lease.
func (n *inode) notOutLocked(fs *FS, k errs.Kind, asked bool) {
	unknown := asked && !overtaken(k) && !refused(k)
	if unknown {
		n.lease.floor = fs.cache.Now() // an answer from before does not know
	} else {
		n.content.out = 0
	}
	n.giveBackLocked(true)
	if unknown || overtaken(k) {
		n.lease.end()
	}
}

// spill writes the data of a small file to the I/O servers, durably where the service may have
// some of it on stable storage. What an earlier attempt of this client may have left behind the end
// becomes a hole; what others have left that did not come to an end the service has cut.
func (f *File) spill(ctx context.Context, c *content, holes []seg.Piece) error {
	dir := writing
	if c.stored > 0 {
		dir = writingDurably
	}
	size := int64(len(c.data))
	return f.settle(ctx, func(ctx context.Context, g *grant, seq uint64) error {
		if seq != c.seq { // the lease is lost, and this must not meet what its next holder writes
			return errs.Newf(errs.Fenced, "client.MoveOut", "", "the file was cut meanwhile")
		}
		for _, p := range between(holes, size) {
			if err := f.move(ctx, g, seq, dir, c.data[p.Off:p.End()], p.Off); err != nil {
				return err
			}
		}
		if c.spilled != meta.SpilledUnder(seq) {
			return nil
		}
		return f.eachStripe(g, func(s int) error {
			return f.punchStripe(ctx, g, seq, s, size, meta.SmallMax)
		})
	})
}

// between are the pieces of [0, size) that are in none of the holes.
func between(holes []seg.Piece, size int64) (out []seg.Piece) {
	var g gaps
	g.list = []seg.Piece{{Len: size}}
	for _, h := range holes {
		g.wrote(size, h.Off, h.End())
	}
	for _, p := range g.list {
		if p.Len > 0 {
			out = append(out, p)
		}
	}
	return out
}
