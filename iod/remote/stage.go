package remote

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mem/regcache"
	"github.com/sluice-storage/sluice/mover"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
)

// stage replaces the caller's description of memory where the provider needs registered memory: it
// is the same memory, registered for the request, or a copy in buffers that are always registered.
type stage struct {
	bufs   []*mem.Buf
	heap   []byte
	use    regcache.Use
	memory msg.Memory
}

// call makes one attempt on a connection.
func (r *Remote) call(ctx context.Context, conn *msg.Conn, c *call) error {
	m := c.req.Out
	if m == nil {
		m = c.req.In
	}
	if m == nil {
		return conn.Call(ctx, &c.req, &c.rep)
	}
	if m.Operation == nil {
		_, err := r.move(ctx, conn, c, m, mem.Auto, "")
		return err
	}
	return r.callPieces(ctx, conn, c, m)
}

// callPieces is call for a part of an operation, whose data may lie in many pieces.
func (r *Remote) callPieces(ctx context.Context, conn *msg.Conn, c *call, m *msg.Memory) error {
	how, why := m.Operation.Method, m.Operation.Why
	shape := mover.Shape{Put: c.req.Out != nil, Fragments: int(m.Access.Pieces()), Bytes: m.Len()}
	chosen := how == mem.Auto && shape.Fragments > 1
	switch {
	case chosen:
		how, why = r.shapes.Choose(conn.Caps(), shape)
	case how == mem.Auto:
		why = whyOne(conn, c.req.In)
	}
	began := time.Now()
	how, err := r.move(ctx, conn, c, m, how, why)
	if chosen && err == nil {
		r.shapes.Took(conn.Caps(), shape, how, time.Since(began))
	}
	return err
}

// whyOne says why a request of one piece is not packed. in is nil of a write.
func whyOne(conn *msg.Conn, in *msg.Memory) string {
	if in != nil && conn.Lent(in) {
		return "one piece, which the server lends"
	}
	return "one piece"
}

// move moves the data by a method, or by another one where that is impossible. Pieces stay where
// they are if the provider reaches their memory, or it can be registered.
func (r *Remote) move(ctx context.Context, conn *msg.Conn, c *call, m *msg.Memory, how mem.Method,
	why string) (mem.Method, error) {
	provider := conn.Caps().Provider
	switch {
	case m.Len() <= int64(conn.InlineRoom()) || m.Len() == 0:
		m.Note(provider, mem.Pack, "inside of the message")
		return mem.Pack, conn.Call(ctx, &c.req, &c.rep)
	case how == mem.Pack:
		m.Note(provider, mem.Pack, why)
		return mem.Pack, r.callCopied(ctx, conn, c, m)
	case r.opts.Buffers == nil || conn.Direct(m, c.req.In != nil):
		m.Note(provider, mem.Gather, why)
		return mem.Gather, conn.Call(ctx, &c.req, &c.rep)
	case r.register(conn, c, m):
		m.Note(provider, mem.Gather, why)
		defer c.stage.unregister()
		req := c.staged()
		return mem.Gather, conn.Call(ctx, &req, &c.rep)
	}
	m.Note(provider, mem.Pack, "memory that the provider does not reach")
	return mem.Pack, r.callCopied(ctx, conn, c, m)
}

// register registers the caller's memory, if that costs less than to copy it.
func (r *Remote) register(conn *msg.Conn, c *call, m *msg.Memory) bool {
	if r.opts.Registrations == nil {
		return false
	}
	cache := r.opts.Registrations(conn.Domain())
	if cache == nil {
		return false
	}
	s := &c.stage
	s.memory = msg.Memory{Windows: append(s.memory.Windows[:0], m.Windows...),
		Domain: conn.Domain(), Access: m.Access}
	return cache.Take(&s.use, s.memory.Windows, m.Operation)
}

// unregister releases the registration: the call is over, and all grants are revoked.
func (s *stage) unregister() {
	s.use.End()
	clear(s.memory.Windows)
}

// staged is the request with the stage's memory in place of the caller's.
func (c *call) staged() msg.Request {
	req := c.req
	if req.Out != nil {
		req.Out = &c.stage.memory
	} else {
		req.In = &c.stage.memory
	}
	return req
}

// callCopied moves the data through registered buffers: one copy here, where the provider would
// need a costlier path or could not move the data at all.
func (r *Remote) callCopied(ctx context.Context, conn *msg.Conn, c *call, m *msg.Memory) error {
	var lender *mem.User
	if r.opts.Buffers != nil {
		lender = r.opts.Buffers()
	}
	switch {
	case lender != nil:
		err := c.stage.take(ctx, lender, int(m.Len()))
		if errs.KindOf(err) == errs.Invalid && conn.AnyMemory() {
			return conn.Call(ctx, &c.req, &c.rep) // more than all buffers hold: the provider's slow path
		}
		if err != nil {
			return err
		}
	case m.Access.Pieces() > 1 && conn.AnyMemory():
		c.stage.make(int(m.Len()))
	default:
		return conn.Call(ctx, &c.req, &c.rep)
	}
	defer c.stage.release()
	req := c.staged()
	if req.Out != nil {
		if err := m.Gather(c.stage.memory.Windows); err != nil {
			return err
		}
	}
	err := conn.Call(ctx, &req, &c.rep)
	if err != nil || req.In == nil {
		return err
	}
	return m.Scatter(c.stage.memory.Windows, min(max(c.rep.InLen, 0), m.Len()))
}

// take allocates buffers for n bytes.
func (s *stage) take(ctx context.Context, lender *mem.User, n int) (err error) {
	s.bufs, err = lender.Take(ctx, n, s.bufs[:0])
	if err != nil {
		return errs.Wrap("iod.Call", "buffers", err)
	}
	s.describe(n)
	return nil
}

// tryTake is take where nobody has to be waited for.
func (s *stage) tryTake(lender *mem.User, n int) (ok bool) {
	if s.bufs, ok = lender.TryTake(n, s.bufs[:0]); ok {
		s.describe(n)
	}
	return ok
}

// describe makes the buffers the memory of n bytes.
func (s *stage) describe(n int) {
	s.memory = msg.Memory{Windows: s.memory.Windows[:0], Access: seg.Contig(0, int64(n))}
	left := n
	for _, b := range s.bufs {
		part := min(left, b.Len())
		s.memory.Windows = append(s.memory.Windows, fabric.Sge{Buf: b.Bytes()[:part:part]})
		left -= part
	}
}

// make takes memory of the heap, where a provider moves any memory equally well.
func (s *stage) make(n int) {
	if cap(s.heap) < n {
		s.heap = make([]byte, n)
	}
	s.bufs = s.bufs[:0]
	s.memory = msg.Memory{Windows: append(s.memory.Windows[:0], fabric.Sge{Buf: s.heap[:n:n]}),
		Access: seg.Contig(0, int64(n))}
}

// heapMax is how much memory of the heap a call keeps for the next one.
const heapMax = 256 << 10

// release frees the buffers: the call is over, and nothing touches them any more.
func (s *stage) release() {
	for _, b := range s.bufs {
		b.Return()
	}
	clear(s.bufs)
	clear(s.memory.Windows)
	if cap(s.heap) > heapMax {
		s.heap = nil
	}
}
