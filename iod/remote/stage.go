package remote

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mem/regcache"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
)

// stage replaces the caller's description of memory where the provider needs registered memory: it
// is the same memory, registered for the request, or a copy in buffers that are always registered.
type stage struct {
	bufs   []*mem.Buf
	use    regcache.Use
	memory msg.Memory
}

// call makes one attempt on a connection.
func (r *Remote) call(ctx context.Context, conn *msg.Conn, c *call) error {
	m := c.req.Out
	if m == nil {
		m = c.req.In
	}
	if m == nil || r.opts.Buffers == nil || conn.Direct(m) {
		return conn.Call(ctx, &c.req, &c.rep)
	}
	if r.register(conn, c, m) {
		defer c.stage.unregister()
		req := c.staged()
		return conn.Call(ctx, &req, &c.rep)
	}
	return r.callCopied(ctx, conn, c, m)
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
	lender := r.opts.Buffers()
	if lender == nil {
		return conn.Call(ctx, &c.req, &c.rep)
	}
	err := c.stage.take(ctx, lender, int(m.Len()))
	if errs.KindOf(err) == errs.Invalid && conn.AnyMemory() {
		return conn.Call(ctx, &c.req, &c.rep) // more than all buffers hold: the provider's slow path
	}
	if err != nil {
		return err
	}
	defer c.stage.release()
	req := c.staged()
	if req.Out != nil {
		if err := m.Gather(c.stage.memory.Windows); err != nil {
			return err
		}
	}
	err = conn.Call(ctx, &req, &c.rep)
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
	s.memory = msg.Memory{Windows: s.memory.Windows[:0], Access: seg.Contig(0, int64(n))}
	left := n
	for _, b := range s.bufs {
		part := min(left, b.Len())
		s.memory.Windows = append(s.memory.Windows, fabric.Sge{Buf: b.Bytes()[:part:part]})
		left -= part
	}
	return nil
}

// release frees the buffers: the call is over, and nothing touches them any more.
func (s *stage) release() {
	for _, b := range s.bufs {
		b.Return()
	}
	clear(s.bufs)
	clear(s.memory.Windows)
}
