package server

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier"
)

// read lends cache units to the transfer, pushes them into the client's memory and replies. The
// units are returned when the reply has left, because until then the network, or the client, may
// still read them; nobody waits for that.
func (s *Server) read(ctx context.Context, c *msg.Call, w *work) error {
	t, a := &w.req.Target, &w.req.Args
	n := a.Access.Len()
	if n != c.InLen() {
		return errs.Newf(errs.Invalid, "iod.Read", t.Object.String(),
			"object access of %d bytes, memory of %d", n, c.InLen())
	}
	s.count.policies[t.How.Policy].Add(1)
	if t.How.DirectFor(true) {
		if done, err := s.readDirect(ctx, c, w); done || err != nil {
			return err
		}
	}
	if s.lendCached(c, w) {
		return s.give(ctx, c, w)
	}
	c.Waits() // for memory, for the disk, or for somebody who reads the same
	far := s.cfg.Cache.Query(t.Object, a.Access) < n
	memory := s.manage.hits
	if far {
		memory = s.manage.misses
	}
	if err := memory.Enter(ctx, &w.memory, w.asks(c, heldBytes(a.Access))); err != nil {
		return err
	}
	w.room = memory
	loan, err := s.lend(ctx, c, w, far)
	if err != nil {
		return err
	}
	w.loan = loan
	return s.give(ctx, c, w)
}

// give pushes the loan to the client, and replies. When it says errSent w is not the caller's any
// more.
func (s *Server) give(ctx context.Context, c *msg.Call, w *work) error {
	w.time.enter(stateSend)
	if err := c.Push(ctx, 0, w.loan.Sges()); err != nil {
		return err
	}
	if !w.req.Target.How.NoSums {
		w.sums = w.loan.Sums(w.sums, iod.SumChunk) // while the data is on its way
	}
	if err := s.fences.check(w.req.Target.Object); err != nil {
		return err // removed while it was read
	}
	n := w.req.Args.Access.Len()
	s.count.readBytes.Add(uint64(n))
	w.read = n
	iod.AppendData(&w.reply, s.mark(), w.sums)
	c.ReplyLater(w.reply.B, n, w.sent)
	return errSent
}

// lendCached lends the data if all of it is cached and nothing has to be waited for. The loan comes
// before the gate, so that a read that is not cached does not pass the gate in vain.
func (s *Server) lendCached(c *msg.Call, w *work) bool {
	t, a := &w.req.Target, &w.req.Args
	loan := s.cfg.Cache.Lend(t.Object, a.Access, hint(&t.How))
	if loan == nil {
		return false
	}
	if !s.manage.hits.TryEnter(&w.memory, w.asks(c, heldBytes(a.Access))) {
		loan.Release()
		return false
	}
	w.loan, w.room = loan, s.manage.hits
	w.time.enter(stateSendInit)
	return true
}

// lend lends the data; missing units wait for the disk gate.
func (s *Server) lend(ctx context.Context, c *msg.Call, w *work, far bool) (*unifier.Loan, error) {
	t, a := &w.req.Target, &w.req.Args
	w.time.enter(stateDisk)
	defer w.time.enter(stateSendInit)
	if far {
		if err := s.enterDisk(ctx, c, w, a.Access.Len()); err != nil {
			return nil, err
		}
		defer s.leaveDisk(w)
	}
	return s.cfg.Cache.Read(ctx, t.Object, a.Access, hint(&t.How))
}

func hint(h *iod.How) unifier.Hint {
	return unifier.Hint{Policy: unifier.Policy(h.Policy), Unit: h.UnitBytes}
}

// heldBytes is how much of the cache's memory an access may hold at once: it comes in slabs.
func heldBytes(a seg.Access) int64 {
	const slab = iod.UnitMax
	var sum int64
	before := int64(-1) // the last slab of the piece before, which is not held twice
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return sum
		}
		first, last := p.Off/slab, (p.End()-1)/slab
		sum += (last - first + 1) * slab
		if first == before {
			sum -= slab
		}
		before = last
	}
}
