package client

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

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
	size, seen, err := f.sizeSeen(ctx, off+int64(len(p)))
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
	if f.node.doubts(seen) {
		if size, err = f.sizeFor(ctx, off+int64(n)); err != nil {
			return 0, err
		}
		n = int(max(min(int64(n), size-off), 0))
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
	return f.all(ctx, g, seq, dir, plan(&g.layout, flat(p), a))
}

// finish takes note of a transfer of [from, end).
func (f *File) finish(dir direction, from, end int64, seq uint64) {
	if dir != reading && !f.fixed {
		f.node.wrote(from, end, seq)
	}
}

// all runs the requests of an operation at once, the first one on this goroutine, and returns when
// all of them have ended: the memory is theirs until then. Of several errors the worst counts:
// one that ends the operation comes before one that repeats it.
func (f *File) all(ctx context.Context, g *grant, seq uint64, dir direction, shares []share) error {
	if dir == reading && f.startable(shares) {
		return f.readStarted(ctx, g, seq, shares)
	}
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

// startedMax, in bytes, is what one goroutine reads from several servers: more is copied, where it
// must be, by as many processors as there are servers.
const startedMax = 256 << 10

// startable tells whether one goroutine is to read all shares: to wake others would take longer
// than what they do.
func (f *File) startable(shares []share) bool {
	if f.fs.starter == nil || len(shares) < 2 {
		return false
	}
	var bytes int64
	for i := range shares {
		if len(shares[i].requests) > 1 {
			return false
		}
		bytes += shares[i].requests[0].object.Len()
	}
	return bytes <= startedMax
}

// readStarted sends all requests, and waits for one after the other. Those that could not be sent
// at once, or whose server was lost, follow when the others are over: see msg.Conn.TryStart.
func (f *File) readStarted(ctx context.Context, g *grant, seq uint64, shares []share) error {
	under := make([]iod.Started, len(shares))
	for i := range shares {
		r := &shares[i].requests[0]
		under[i], _ = f.fs.starter.TryRead(ctx, f.target(g, seq, shares[i].stripe), r.object,
			&r.memory, nil)
	}
	failed := make([]error, len(shares))
	var wg sync.WaitGroup
	for i := range shares {
		if under[i] == nil {
			continue
		}
		_, again, err := under[i].Finish(ctx)
		if again {
			under[i] = nil
			continue
		}
		failed[i] = err
	}
	for i := range shares {
		if under[i] == nil {
			wg.Go(func() { failed[i] = f.share(ctx, g, seq, reading, &shares[i]) })
		}
	}
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

// atOnce is how many requests of one share are under way: enough that the server always has the
// next one, and its buffers are not all this operation's.
const atOnce = 4

// share carries out one server's part. Where that is more than one request, they are under way
// together; after an error no further one is begun.
func (f *File) share(ctx context.Context, g *grant, seq uint64, dir direction, s *share) error {
	var next, broken atomic.Int64
	work := func() error {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(s.requests) || broken.Load() != 0 {
				return nil
			}
			if err := f.send(ctx, g, seq, dir, s.stripe, &s.requests[i]); err != nil {
				broken.Store(1)
				return err
			}
		}
	}
	var failed [atOnce]error
	var wg sync.WaitGroup
	for i := 1; i < min(atOnce, len(s.requests)); i++ {
		wg.Go(func() { failed[i] = work() })
	}
	failed[0] = work()
	wg.Wait()
	return worst(failed[:])
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

// sight is what was known of a file's end when a read began.
type sight struct {
	seq      uint64
	recalled bool
}

// doubts tells whether a file may have been cut since: then zeroes that a read has found may lie
// behind its end.
func (n *inode) doubts(seen sight) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.truncSeq != seen.seq || n.recalled && !seen.recalled
}

// sizeFor returns the file's size for an access that ends at end. If that is beyond what is known,
// or a lease was recalled, or the handle is strict, the service is asked, unless there is one.
func (f *File) sizeFor(ctx context.Context, end int64) (int64, error) {
	size, _, err := f.sizeSeen(ctx, end)
	return size, err
}

// sizeSeen is sizeFor for who looks afterwards whether that is still so.
func (f *File) sizeSeen(ctx context.Context, end int64) (int64, sight, error) {
	size, seen, recalled := f.node.sight()
	if end <= size && !recalled && !f.strict || f.fixed {
		return size, seen, nil
	}
	_, seen, _ = f.node.sight()
	a, err := f.fs.statNode(ctx, f.node.ino)
	if err != nil {
		return 0, seen, err
	}
	if a.TruncSeq > seen.seq {
		seen.seq = a.TruncSeq // the answer knows of it
	}
	return a.Size, seen, nil
}

func (n *inode) sight() (size int64, seen sight, recalled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.size, sight{n.truncSeq, n.recalled}, n.recalled
}
