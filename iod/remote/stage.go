package remote

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
)

// stage is where the data of one request lies while its caller's memory is of a kind that the
// provider does not reach: one copy here, and one by the server, in place of a way through the
// provider that costs more, or of none at all.
type stage struct {
	bufs   []*mem.Buf
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
	lender := r.opts.Buffers()
	if lender == nil {
		return conn.Call(ctx, &c.req, &c.rep)
	}
	err := c.stage.take(ctx, lender, int(m.Len()))
	if errs.KindOf(err) == errs.Invalid && conn.AnyMemory() {
		return conn.Call(ctx, &c.req, &c.rep) // more than all buffers hold: the slow way
	}
	if err != nil {
		return err
	}
	defer c.stage.release()
	req := c.req
	if req.Out != nil {
		if err := m.Gather(c.stage.memory.Windows); err != nil {
			return err
		}
		req.Out = &c.stage.memory
	} else {
		req.In = &c.stage.memory
	}
	err = conn.Call(ctx, &req, &c.rep)
	if err != nil || req.In == nil {
		return err
	}
	return m.Scatter(c.stage.memory.Windows, min(max(c.rep.InLen, 0), m.Len()))
}

// take borrows room for n bytes.
func (s *stage) take(ctx context.Context, lender *mem.User, n int) (err error) {
	s.bufs, err = lender.Take(ctx, n, s.bufs[:0])
	if err != nil {
		return errs.Wrap("iod.Call", "buffers", err)
	}
	s.memory.Windows = s.memory.Windows[:0]
	left := n
	for _, b := range s.bufs {
		part := min(left, b.Len())
		s.memory.Windows = append(s.memory.Windows, fabric.Sge{Buf: b.Bytes()[:part:part]})
		left -= part
	}
	s.memory.Access = seg.Contig(0, int64(n))
	return nil
}

// release gives the room back: the call is over, and nobody touches it any more.
func (s *stage) release() {
	for _, b := range s.bufs {
		b.Return()
	}
	clear(s.bufs)
	clear(s.memory.Windows)
}
