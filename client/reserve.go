package client

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/seg"
)

// Reserve gives [off, off+n) its space at the I/O servers: no write to it fails with errs.NoSpace
// from then on, until it is punched, or a truncation ends before it, be it one that extends the
// file. Nothing that is there changes; what was never written reads as zeroes and stays a hole that
// has its space. The file becomes off+n bytes long if it is shorter, unless keepSize says that it
// shall not. With an error nothing is reserved: errs.NoSpace, or errs.Quota, which counts the range
// as if it were written. A file in the metadata moves out to the I/O servers.
//
// If this client dies before it is done, the range may be reserved in part. So it may where two
// clients reserve the same at the same time, and one of them finds no room: it gives back what it
// got, and the other may have counted on that.
func (f *File) Reserve(ctx context.Context, off, n int64, keepSize bool) error {
	r := allocation{f: f, off: off, end: off + n, keepSize: keepSize}
	return errs.Wrap("client.Reserve", "", r.run(ctx, n))
}

// ZeroRange is Reserve whose range reads as zeroes afterwards: what was written there is gone, and
// its space stays.
func (f *File) ZeroRange(ctx context.Context, off, n int64, keepSize bool) error {
	r := allocation{f: f, off: off, end: off + n, keepSize: keepSize, zero: true}
	return errs.Wrap("client.ZeroRange", "", r.run(ctx, n))
}

// allocation is one such request.
type allocation struct {
	f        *File
	off, end int64
	keepSize bool
	zero     bool
	fresh    [][]seg.Piece // by stripe: what had no space before
	seq      uint64        // the truncations that it has followed
}

func (r *allocation) run(ctx context.Context, n int64) error {
	f := r.f
	if err := f.room("client.Reserve", r.off, n); err != nil {
		return err
	}
	if n <= 0 {
		return errs.Newf(errs.Invalid, "", "", "%d bytes", n)
	}
	to, err := f.Room(ctx, r.off, r.end)
	if err == nil && to < r.end {
		_, err = roomIn(to, to)
	}
	if err != nil {
		return err
	}
	if err := f.leaveSmall(ctx); err != nil {
		return err
	}
	if err := f.couldFit(ctx, n); err != nil {
		return err
	}
	if err = f.settle(ctx, r.attempt); err != nil {
		r.undo(ctx)
		return err
	}
	return r.note(ctx)
}

// leaveSmall moves a small file out: the metadata service reserves nothing.
func (f *File) leaveSmall(ctx context.Context) error {
	for f.node.small.Load() {
		if err := f.present(); err != nil {
			return err
		}
		if err := f.fs.moveOut(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

const (
	// checkedFrom is how many bytes are worth a question before they are reserved one server's part
	// after the other: until it turns out that they do not fit others would find no room.
	checkedFrom = 1 << 30

	// spaceNews is how old the metadata service's knowledge of the servers' room may be.
	spaceNews = 3 * time.Second
)

// couldFit refuses what all servers together have no room for.
func (f *File) couldFit(ctx context.Context, n int64) error {
	if n < checkedFrom {
		return nil
	}
	a, err := f.fs.statNode(ctx, f.node.ino)
	if err != nil {
		return err
	}
	have := a.Size
	if a.Holes && a.Allocated >= 0 {
		have = a.Allocated
	}
	for try := range 2 {
		st, err := f.fs.Statfs(ctx, 0) // of no inode: quotas are asked elsewhere
		if err != nil || n-have <= st.Free {
			return err
		}
		if try == 0 && !wait.Sleep(ctx, spaceNews) { // something may just have been removed
			return ctx.Err()
		}
	}
	return errs.Newf(errs.NoSpace, "", "", "%d bytes, of which the file has %d; all servers together "+
		"have less", n, have)
}

// attempt reserves at all servers, then zeroes, and lets the file grow last: all of that under one
// truncate sequence, so that a truncation in between does not take the space and leave the length.
func (r *allocation) attempt(ctx context.Context, g *grant, seq uint64) error {
	f := r.f
	if r.fresh == nil {
		r.fresh = make([][]seg.Piece, g.layout.Width())
	}
	err := f.eachStripe(g, func(s int) error { return r.reserveStripe(ctx, g, seq, s) })
	if err == nil && r.zero {
		err = f.eachStripe(g, func(s int) error { return f.blankStripe(ctx, g, seq, s, r.off, r.end) })
	}
	if err == nil && !r.keepSize && !f.fixed && r.end > f.Size() {
		s, objOff, _ := g.layout.Locate(r.end - 1)
		_, _, err = f.fs.data.ReserveSpace(ctx, f.target(g, seq, s), objOff, 1, true)
	}
	r.seq = seq
	return err
}

func (r *allocation) reserveStripe(ctx context.Context, g *grant, seq uint64, s int) error {
	t := r.f.target(g, seq, s)
	for lo, hi := g.layout.ObjectSize(s, r.off), g.layout.ObjectSize(s, r.end); lo < hi; {
		end, fresh, err := r.f.fs.data.ReserveSpace(ctx, t, lo, hi-lo, false)
		if err != nil {
			return err
		}
		if end <= lo {
			return errs.Newf(errs.Protocol, "", serverName(t.Server), "nothing reserved at %d", lo)
		}
		r.fresh[s] = append(r.fresh[s], fresh...)
		lo = end
	}
	return nil
}

// undoMax bounds how long a reservation that failed is undone.
const undoMax = time.Minute

// undo gives back what was reserved, whether the caller still waits or not.
func (r *allocation) undo(ctx context.Context) {
	f := r.f
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoMax)
	defer cancel()
	err := f.settle(ctx, func(ctx context.Context, g *grant, seq uint64) error {
		return f.eachStripe(g, func(s int) error {
			if s >= len(r.fresh) {
				return nil
			}
			for len(r.fresh[s]) > 0 {
				p := r.fresh[s][0]
				if err := f.fs.data.ReleaseSpace(ctx, f.target(g, seq, s), p.Off, p.Len); err != nil {
					return err
				}
				r.fresh[s] = r.fresh[s][1:]
			}
			return nil
		})
	})
	if err != nil {
		f.fs.opts.Logger.Warn("space that was reserved in part was not given back", "ino", f.node.ino,
			"err", err)
	}
}

// note takes note of the change and tells the metadata service at once: how long the file is, and
// that its length does not say how much space it takes.
func (r *allocation) note(ctx context.Context) error {
	f := r.f
	if f.fixed {
		return nil
	}
	f.node.allocated(r)
	return f.fs.commit(ctx, f.node, false)
}

func (n *inode) allocated(r *allocation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	end := r.end
	if r.keepSize {
		end = 0
	}
	n.wroteLocked(end, end, r.seq)
	if r.seq == n.truncSeq {
		n.gaps.add(r.off, r.end)
	}
}

// blank makes a range of a file that is not small read as zeroes, and leaves its space to it.
func (f *File) blank(ctx context.Context, off, end int64) error {
	err := f.settle(ctx, func(ctx context.Context, g *grant, seq uint64) error {
		return f.eachStripe(g, func(s int) error { return f.blankStripe(ctx, g, seq, s, off, end) })
	})
	if err == nil {
		err = f.punched(ctx, off, end)
	}
	return err
}

func (f *File) blankStripe(ctx context.Context, g *grant, seq uint64, s int, off, end int64) error {
	lo, hi := g.layout.ObjectSize(s, off), g.layout.ObjectSize(s, end)
	if lo == hi {
		return nil
	}
	_, err := f.fs.data.Blank(ctx, f.target(g, seq, s), lo, hi-lo)
	return err
}
