package client

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// reservation is a range at the end of a file that belongs to one append.
type reservation struct {
	by   *grant // the handle that it was made with; nil: there is none
	off  int64
	seq  uint64 // of the last truncation before it
	sent bool   // a server may have got the data
	held bool   // it was made under LeaseWrite: nobody else looks at the file
}

// madeBy tells whether the handle is the one that the reservation was made with. Its capabilities
// may be others by now.
func (r *reservation) madeBy(g *grant) bool {
	return r.by != nil && r.by.session == g.session && r.by.handle == g.handle
}

// Append writes p at the end of the file and returns where that was. The range is reserved at the
// metadata service first, so that appends of any number of clients follow each other and none is
// lost. Between an append and a positional write of another client that extends the file at the
// same moment there is no such order.
//
// If the outcome of the write is not known, the file is that much longer and the range shows the
// data or zeroes. Where a server has refused the data for want of space, or a quota leaves no room
// for all of it, the range is given back.
func (f *File) Append(ctx context.Context, p []byte) (int64, error) {
	return f.AppendNoted(ctx, p, func(int64) {})
}

// AppendNoted is Append that says where the data goes before it can be there; more than once, if
// the place was lost to a truncation. note must not block, and must not call the FS. It is for who
// must write to the same place if this process dies before Append returns.
func (f *File) AppendNoted(ctx context.Context, p []byte, note func(off int64)) (int64, error) {
	if err := f.room("client.Append", 0, int64(len(p))); err != nil {
		return 0, err
	}
	if err := f.node.appendMu.take(ctx); err != nil {
		return 0, err
	}
	defer f.node.appendMu.giveBack()
	if len(p) == 0 || f.fixed {
		a, err := f.Stat(ctx)
		if err == nil {
			note(a.Size)
			_, err = f.writeAt(ctx, p, a.Size, writing)
		}
		return a.Size, err
	}
	dir := writing
	if f.durable {
		dir = writingDurably
	}
	off, done, err := f.appendSmall(ctx, dir, p, note)
	if done {
		return off, errs.Wrap("client.Append", "", err)
	}
	var r reservation
	err = f.settle(ctx, func(ctx context.Context, g *grant, _ uint64) error {
		if !r.madeBy(g) || r.seq != f.node.sequence() {
			var err error
			if r, err = f.reserve(ctx, g, int64(len(p))); err != nil {
				return err
			}
			if err := f.roomFor(ctx, &r, int64(len(p))); err != nil {
				return err
			}
		}
		note(r.off)
		r.sent = true
		err := f.move(ctx, g, r.seq, dir, p, r.off)
		if err == nil {
			f.landed(ctx, &r)
			// What lies before it is somebody else's to write, and no gap of this client.
			f.finish(dir, min(r.off, f.Size()), r.off+int64(len(p)), r.seq)
		}
		return err
	})
	if err != nil {
		f.abandon(ctx, &r, p, err)
		return 0, errs.Wrap("client.Append", "", err)
	}
	return r.off, nil
}

// roomFor makes sure that the file may become as long as a reservation of n bytes makes it. If not,
// the reservation is given back: an append is whole or it is not.
func (f *File) roomFor(ctx context.Context, r *reservation, n int64) error {
	to, err := f.Room(ctx, r.off, r.off+n)
	if err == nil && to < r.off+n {
		_, err = roomIn(to, to)
	}
	if errs.KindOf(err) == errs.Quota {
		_, _, failed := f.fs.svc.Append(ctx, meta.Caller{Session: r.by.session}, r.by.handle, 0)
		if failed != nil {
			return failed
		}
		r.by = nil
	}
	return err
}

// reserve asks for n bytes at the end of the file. A handle that the service does not know any more
// is reported as expired, so that the caller renews it and tries again.
func (f *File) reserve(ctx context.Context, g *grant, n int64) (r reservation, _ error) {
	c := meta.Caller{Session: g.session}
	if v, ok := ctx.Value(RequestKey{}).(Identified); ok {
		c.ReqID = v.RequestID(UseAppend)
	}
	held := f.node.leased(f.fs)
	if !held {
		f.fs.askToHold(f.node)
	}
	off, a, err := f.fs.svc.Append(ctx, c, g.handle, n)
	switch errs.KindOf(err) {
	case errs.OK:
		f.node.learn(&a)
		return reservation{by: g, off: off, seq: a.TruncSeq, held: held}, nil
	case errs.Stale, errs.Closed:
		return r, errs.New(errs.Expired, "client.Append", "", err)
	}
	return r, err
}

// landed says that the data of a reservation is at the servers, and waits until that of those
// before it is: nobody may see zeroes before data that a program takes for written. It is not
// needed where nobody else can have the file open: who opens it waits for this append (see
// drainLeaving). Whether the service hears it makes no difference to what was written.
func (f *File) landed(ctx context.Context, r *reservation) {
	if r.held && f.node.leased(f.fs) {
		return
	}
	err := f.fs.svc.Appended(ctx, meta.Caller{Session: r.by.session}, r.by.handle)
	if err != nil {
		f.fs.opts.Logger.Debug("an append that is over could not be told", "ino", f.Ino(), "err", err)
	}
}

// abandon settles a reservation whose write has failed. Only data that its one server has refused
// is certain not to come any more: then the range is free again. Otherwise it stays the file's, so
// that nobody else's data is where a late write may still arrive.
func (f *File) abandon(ctx context.Context, r *reservation, p []byte, why error) {
	if r.by == nil || !r.sent {
		return
	}
	end := r.off + int64(len(p))
	if _, _, single := single(&r.by.layout, p, r.off); single && errs.KindOf(why) == errs.NoSpace {
		_, _, err := f.fs.svc.Append(ctx, meta.Caller{Session: r.by.session}, r.by.handle, 0)
		if err == nil {
			return
		}
	}
	f.node.wrote(end, end, r.seq)
	own := *r // others go on without it
	f.fs.background(func() { f.landed(f.fs.life, &own) })
}
