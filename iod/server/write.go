package server

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
)

// write receives all of the data into buffers that nobody else sees, verifies it, and only then
// publishes it: a client that dies while sending, or whose data does not match its sums, changes
// nothing.
func (s *Server) write(ctx context.Context, c *msg.Call, w *work) error {
	t, a := &w.req.Target, &w.req.Args
	n := a.Access.Len()
	if n != c.OutLen() {
		return errs.Newf(errs.Invalid, "iod.Write", t.Object.String(),
			"object access of %d bytes, memory of %d", n, c.OutLen())
	}
	s.count.policies[t.How.Policy].Add(1)
	if t.How.DirectFor(false) && a.Again == 0 {
		if done, err := s.writeDirect(ctx, c, w); done || err != nil {
			return err
		}
	}
	if err := s.manage.writes.Enter(ctx, &w.memory, w.asks(c, n)); err != nil {
		return err
	}
	defer s.manage.writes.Leave(&w.memory)
	w.time.enter(stateSendInit)
	draft, err := s.cfg.Cache.Draft(ctx, t.Object, a.Access, hint(&t.How))
	if err != nil {
		return err
	}
	if err := s.receive(ctx, c, w, draft); err != nil {
		draft.Abort()
		return err
	}
	repeated, err := s.publish(ctx, c, w, draft)
	if err != nil {
		return err
	}
	w.time.enter(stateFin)
	if repeated {
		s.count.repeats.Add(1)
	} else {
		s.count.writeBytes.Add(uint64(n))
		w.written = n
	}
	return s.marked(c, w, nil)
}

// receive fetches the data and checks that it is what was sent.
func (s *Server) receive(ctx context.Context, c *msg.Call, w *work, d *unifier.Draft) error {
	w.time.enter(stateSend)
	if err := c.Pull(ctx, 0, d.Sges()); err != nil {
		return err
	}
	if w.req.Target.How.NoSums {
		return nil
	}
	err := d.Verify(w.req.Args.Sums, iod.SumChunk)
	if errs.KindOf(err) == errs.Corrupt {
		s.count.corrupt.Add(1)
	}
	return err
}

// publish makes the data visible. A write that goes to the store at once passes the disk gate.
func (s *Server) publish(ctx context.Context, c *msg.Call, w *work,
	d *unifier.Draft) (repeated bool, err error) {
	a := &w.req.Args
	w.time.enter(stateDisk)
	if a.Again != 0 { // through the cache in every mode: it knows what was written since
		d.Again()
	}
	if !s.cfg.WriteBack || a.Durability != stripe.Volatile || a.Again != 0 {
		if err := s.enterDisk(ctx, c, w, a.Access.Len()); err != nil {
			d.Abort()
			return false, err
		}
		defer s.leaveDisk(w)
	}
	// With its place at the disk: a fence, which has one too, waits for who is in here.
	if err := s.writers.enter(&w.req.Target); err != nil {
		d.Abort()
		return false, err
	}
	defer s.writers.leave(&w.req.Target)
	return d.Publish(ctx, w.req.Target.Stamp, a.Durability)
}
