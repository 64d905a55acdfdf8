package client

import (
	"context"
	"io"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// direction is what a transfer does.
type direction uint8

const (
	reading direction = iota
	writing           // volatile until Sync
	writingDurably
)

// ReadAt reads len(p) bytes from off on. Less is read only at the end of the file, with io.EOF.
func (f *File) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := f.readable(off); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if n, done, err := f.readSmallAt(ctx, p, off); done {
		return n, err
	}
	size, err := f.sizeFor(ctx, off+int64(len(p)))
	if err != nil {
		return 0, err
	}
	if off >= size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), size-off))
	if err := f.one(ctx, reading, p[:n], off); err != nil {
		return 0, errs.Wrap("client.Read", "", err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes p at off. What it acknowledged survives the death of any server while this client
// lives, and everything once Sync has returned, or the client was closed. What a quota leaves no
// room for is not written: then less than all of p is, with errs.Quota.
func (f *File) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
	return f.writeAt(ctx, p, off, writing)
}

// WriteAtDurable is WriteAt whose data is on stable storage when it returns. The file's size is
// not, until the next Sync.
func (f *File) WriteAtDurable(ctx context.Context, p []byte, off int64) (int, error) {
	return f.writeAt(ctx, p, off, writingDurably)
}

func (f *File) writeAt(ctx context.Context, p []byte, off int64, dir direction) (int, error) {
	if err := f.room("client.Write", off, int64(len(p))); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	to, err := f.Room(ctx, off, off+int64(len(p)))
	if err != nil {
		return 0, err
	}
	part := p[:to-off]
	done, err := f.writeSmall(ctx, dir, off, to, func(data []byte) { copy(data[off:], part) })
	if !done {
		err = f.one(ctx, dir, part, off)
	}
	if err != nil {
		return 0, errs.Wrap("client.Write", "", err)
	}
	if len(part) < len(p) {
		_, err = roomIn(to, to)
	}
	return len(part), err
}

// ReadList reads the bytes that file means, in stream order, into bufs laid end to end; the
// lengths must be equal. Each server is asked once. What lies at or behind the end of the file is
// filled with zeroes; n counts the bytes of the stream before the first such byte, with io.EOF if
// there is one.
func (f *File) ReadList(ctx context.Context, bufs [][]byte, file seg.Access) (int64, error) {
	n, err := checkList(bufs, file)
	if err != nil || n == 0 {
		return 0, err
	}
	if err := f.readable(0); err != nil {
		return 0, err
	}
	var size int64
	done, err := f.readSmall(ctx, func(data []byte) {
		size = int64(len(data))
		eachPiece(bufs, file, func(b []byte, off int64) {
			clear(b[copyAt(b, data, off):])
		})
	})
	if !done {
		if size, err = f.sizeFor(ctx, file.Span().End()); err == nil {
			err = f.list(ctx, reading, bufs, file)
		}
	}
	if err != nil {
		return 0, errs.Wrap("client.ReadList", "", err)
	}
	if file.Span().End() <= size {
		return n, nil
	}
	return before(file, size), io.EOF
}

// WriteList writes bufs, laid end to end, to the bytes that file means, in stream order; the
// lengths must be equal. Each server is asked once. Where pieces overlap each byte is one of
// those written.
func (f *File) WriteList(ctx context.Context, bufs [][]byte, file seg.Access) (int64, error) {
	n, err := checkList(bufs, file)
	if err != nil || n == 0 {
		return 0, err
	}
	span := file.Span()
	if err := f.room("client.WriteList", span.Off, span.Len); err != nil {
		return 0, err
	}
	to, err := f.Room(ctx, span.Off, span.End())
	if err == nil && to < span.End() {
		_, err = roomIn(to, to) // pieces are in any order: all or nothing
	}
	if err != nil {
		return 0, errs.Wrap("client.WriteList", "", err)
	}
	done, err := f.writeSmall(ctx, writing, span.Off, span.End(), func(data []byte) {
		eachPiece(bufs, file, func(b []byte, off int64) { copy(data[off:], b) })
	})
	if !done {
		err = f.list(ctx, writing, bufs, file)
	}
	if err != nil {
		return 0, errs.Wrap("client.WriteList", "", err)
	}
	return n, nil
}

// checkList compares the lengths of the two sides.
func checkList(bufs [][]byte, file seg.Access) (int64, error) {
	if err := file.Validate(listMax, layout.FileSizeMax); err != nil {
		return 0, err
	}
	var n int64
	for _, b := range bufs {
		n += int64(len(b))
	}
	if n != file.Len() {
		return 0, errs.Newf(errs.Invalid, "client.List", "",
			"%d bytes of memory for %d bytes of the file", n, file.Len())
	}
	return n, nil
}

// listMax is how many pieces one call may have after expansion: their description takes some 100
// bytes each while the call runs.
const listMax = 4 << 20

// before counts the leading bytes of the stream that lie before the end of the file.
func before(a seg.Access, size int64) int64 {
	var n int64
	for c := a.Cursor(); ; {
		left := c.Left()
		if left == 0 {
			return n
		}
		p, _ := c.Next(left)
		if p.End() > size {
			return n + max(size-p.Off, 0)
		}
		n += p.Len
	}
}

func (f *File) readable(off int64) error {
	if f.flags&meta.OpenRead == 0 {
		return errs.Newf(errs.Closed, "client.Read", "", "the file is not open for reading")
	}
	if off < 0 {
		return errs.Newf(errs.Invalid, "client.Read", "", "offset %d", off)
	}
	return nil
}

// room checks a range that is to be changed.
func (f *File) room(op string, off, n int64) error {
	if err := f.writable(op); err != nil {
		return err
	}
	limit := int64(layout.FileSizeMax)
	if f.fixed {
		limit = f.Size()
	}
	switch {
	case off < 0 || n < 0:
		return errs.Newf(errs.Invalid, op, "", "range at %d of %d bytes", off, n)
	case off > limit-n:
		return errs.Newf(errs.TooBig, op, "", "range ends behind byte %d", limit)
	}
	return nil
}

// one moves one piece.
func (f *File) one(ctx context.Context, dir direction, p []byte, off int64) error {
	return f.settle(ctx, func(ctx context.Context, g *grant, seq uint64) error {
		err := f.move(ctx, g, seq, dir, p, off)
		if err == nil {
			f.finish(dir, off, off+int64(len(p)), seq)
		}
		return err
	})
}

// move is one attempt at moving one piece. Of one that was written the caller must take note.
func (f *File) move(ctx context.Context, g *grant, seq uint64, dir direction, p []byte,
	off int64) error {
	if s, r, ok := single(&g.layout, p, off); ok {
		return f.send(ctx, g, seq, dir, s, &r)
	}
	a := seg.Contig(off, int64(len(p)))
	return f.all(ctx, g, seq, dir, plan(&g.layout, [][]byte{p}, a))
}

// list moves an access of any form.
func (f *File) list(ctx context.Context, dir direction, bufs [][]byte, a seg.Access) error {
	return f.settle(ctx, func(ctx context.Context, g *grant, seq uint64) error {
		if err := f.all(ctx, g, seq, dir, plan(&g.layout, bufs, a)); err != nil {
			return err
		}
		from, end := a.Span().Off, a.Span().End()
		if a.Pieces() > 1 {
			from = end // where it grows the file there may be gaps between the pieces
		}
		f.finish(dir, from, end, seq)
		return nil
	})
}

// finish takes note of a transfer of [from, end).
func (f *File) finish(dir direction, from, end int64, seq uint64) {
	if dir != reading && !f.fixed {
		f.node.wrote(from, end, seq)
	}
}

// all runs the shares of an operation at once, the first one on this goroutine, and returns when
// all of them have ended: the memory is theirs until then. Of several errors the worst counts:
// one that ends the operation comes before one that repeats it.
func (f *File) all(ctx context.Context, g *grant, seq uint64, dir direction, shares []share) error {
	if len(shares) == 0 {
		return nil
	}
	failed := make([]error, len(shares))
	var wg sync.WaitGroup
	for i := 1; i < len(shares); i++ {
		wg.Go(func() { failed[i] = f.share(ctx, g, seq, dir, &shares[i]) })
	}
	failed[0] = f.share(ctx, g, seq, dir, &shares[0])
	wg.Wait()
	return worst(failed)
}

func worst(failed []error) error {
	var again error
	for _, err := range failed {
		switch errs.KindOf(err) {
		case errs.OK:
		case errs.Stale, errs.Expired:
			again = err
		default:
			return err
		}
	}
	return again
}

func (f *File) share(ctx context.Context, g *grant, seq uint64, dir direction, s *share) error {
	for i := range s.requests {
		if err := f.send(ctx, g, seq, dir, s.stripe, &s.requests[i]); err != nil {
			return err
		}
	}
	return nil
}

// send carries out one request.
func (f *File) send(ctx context.Context, g *grant, seq uint64, dir direction, s int,
	r *request) error {
	t := f.target(g, seq, s)
	var err error
	switch dir {
	case reading:
		_, err = f.fs.data.Read(ctx, t, r.object, &r.memory)
	case writing:
		_, err = f.fs.data.Write(ctx, t, r.object, &r.memory, stripe.Volatile)
	case writingDurably:
		_, err = f.fs.data.Write(ctx, t, r.object, &r.memory, stripe.Durable)
	}
	if err == nil && dir == writing {
		f.node.acked(s)
	}
	return err
}

func (f *File) target(g *grant, seq uint64, s int) iod.Target {
	return iod.Target{
		Server: g.layout.Servers[s],
		Object: stripe.ObjectID{File: uint64(f.node.ino), Gen: g.gen, Stripe: uint32(s)},
		Layout: g.layout.Version,
		How:    f.How(),
		Cap:    g.caps[s],
		Stamp:  wire.Stamp{Session: g.session, Gen: g.gen, Epoch: g.epoch, TruncSeq: seq},
	}
}

// sizeFor returns the file's size for an access that ends at end. If that is beyond what is known,
// or a lease was recalled, or the handle is strict, the service is asked, unless there is one.
func (f *File) sizeFor(ctx context.Context, end int64) (int64, error) {
	f.node.mu.Lock()
	size, recalled := f.node.size, f.node.recalled
	f.node.mu.Unlock()
	if end <= size && !recalled && !f.strict || f.fixed {
		return size, nil
	}
	a, err := f.fs.statNode(ctx, f.node.ino)
	if err != nil {
		return 0, err
	}
	return a.Size, nil
}
