package server

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
)

// read lends cache units to the transfer, pushes them into the client's memory and replies; the
// units go back when the reply has left, because until then the network may still read them.
func (s *Server) read(ctx context.Context, c *msg.Call, w *work) error {
	t, a := &w.req.Target, &w.req.Args
	n := a.Access.Len()
	if n != c.InLen() {
		return errs.Newf(errs.Invalid, "iod.Read", t.Object.String(),
			"object access of %d bytes, memory of %d", n, c.InLen())
	}
	hold := s.unitsBytes(a.Access)
	if hold > s.reads.Total() {
		return errs.Newf(errs.TooBig, "iod.Read", t.Object.String(),
			"the pieces touch %d bytes of cache units, at most %d: split the request", hold, s.reads.Total())
	}
	if err := s.reads.Acquire(ctx, hold); err != nil {
		return errs.Wrap("iod.Read", t.Object.String(), err)
	}
	defer s.reads.Release(hold)

	loan, err := s.cfg.Cache.Read(ctx, t.Object, a.Access, unifier.Hint{})
	if err != nil {
		return err
	}
	defer loan.Release()
	if err := c.Push(ctx, 0, loan.Sges()); err != nil {
		return err
	}
	if !t.How.NoSums {
		w.sums = loan.Sums(w.sums, iod.SumChunk)
	}
	s.count.readBytes.Add(uint64(n))
	iod.AppendData(&w.reply, iod.Mark{Verifier: s.cfg.Store.Verifier()}, w.sums)
	return ignoreDead(c.Reply(w.reply.B, n))
}

// unitsBytes is how much cache memory an access may hold at once: every piece touches whole units.
func (s *Server) unitsBytes(a seg.Access) int64 {
	unit := int64(s.cfg.Cache.UnitBytes())
	var sum int64
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return sum
		}
		first, last := p.Off/unit, (p.End()-1)/unit
		sum += (last - first + 1) * unit
	}
}

// write receives all of the data into buffers that nobody else sees, and only then publishes them
// piece by piece: a client that dies while sending changes nothing.
func (s *Server) write(ctx context.Context, c *msg.Call, w *work) error {
	t, a := &w.req.Target, &w.req.Args
	n := a.Access.Len()
	if n != c.OutLen() {
		return errs.Newf(errs.Invalid, "iod.Write", t.Object.String(),
			"object access of %d bytes, memory of %d", n, c.OutLen())
	}
	draft, err := s.cfg.Cache.Draft(ctx, t.Object, a.Access, unifier.Hint{})
	if err != nil {
		return err
	}
	if err := c.Pull(ctx, 0, draft.Sges()); err != nil {
		draft.Abort()
		return err
	}
	if !t.How.NoSums {
		if err := draft.Verify(a.Sums, iod.SumChunk); err != nil {
			draft.Abort()
			return err
		}
	}
	if _, err := draft.Publish(ctx, t.Stamp, a.Durability); err != nil {
		return err
	}
	s.count.writeBytes.Add(uint64(n))
	return s.marked(c, w, nil)
}

func (s *Server) punch(ctx context.Context, t *iod.Target, a *iod.Args) error {
	if err := s.cfg.Store.Punch(ctx, t.Object, a.Off, a.Len, t.Stamp, a.Durability); err != nil {
		return err
	}
	s.cfg.Cache.Invalidate(t.Object, a.Off, a.Len)
	return nil
}

// truncate changes the store first: from then on writes of the old truncate sequence are refused,
// and what the cache still holds of the cut part is dropped before anybody is told.
func (s *Server) truncate(ctx context.Context, t *iod.Target, a *iod.Args) error {
	if err := s.cfg.Store.Truncate(ctx, t.Object, a.Len, t.Stamp); err != nil {
		return err
	}
	s.cfg.Cache.Invalidate(t.Object, 0, stripe.MaxObjectBytes)
	return nil
}

func (s *Server) remove(ctx context.Context, t *iod.Target) error {
	if err := s.cfg.Store.Remove(ctx, t.Object); err != nil {
		return err
	}
	s.cfg.Cache.Invalidate(t.Object, 0, stripe.MaxObjectBytes)
	return nil
}

func (s *Server) stat(ctx context.Context, c *msg.Call, w *work) error {
	info, err := s.cfg.Store.Stat(ctx, w.req.Target.Object)
	if err != nil {
		return err
	}
	iod.AppendInfo(&w.reply, &info)
	return ignoreDead(c.Reply(w.reply.B, 0))
}

func (s *Server) mapping(ctx context.Context, c *msg.Call, w *work) error {
	t, a := &w.req.Target, &w.req.Args
	x, err := s.cfg.Store.Map(ctx, t.Object, a.Off, a.Len, iod.ExtentsMax)
	if err != nil {
		return err
	}
	iod.AppendExtents(&w.reply, x)
	return ignoreDead(c.Reply(w.reply.B, 0))
}
