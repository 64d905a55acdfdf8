package server

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
)

// writeDirect stores chunks as they arrive. done is false where the request has to go through the
// cache.
func (s *Server) writeDirect(ctx context.Context, c *msg.Call, w *work) (done bool, err error) {
	t, a, d := &w.req.Target, &w.req.Args, &w.direct
	d.plan(a, &t.How, s.chunkBytes(&t.How), true)
	if len(d.far) == 0 || !disjoint(a.Access) {
		return false, nil
	}
	if err := s.enterDirect(ctx, c, w); err != nil {
		return true, err
	}
	defer s.leaveDirect(w)
	defer d.release()
	d.call, d.sums = c, a.Sums
	repeated, err := s.repeated(ctx, w)
	if err != nil {
		return true, err
	}
	if repeated {
		s.count.repeats.Add(1)
		return true, s.marked(c, w, nil)
	}
	if err := s.writeParts(ctx, w); err != nil {
		if errs.KindOf(err) == errs.Corrupt {
			s.count.corrupt.Add(1)
		}
		return true, err
	}
	w.time.enter(stateFin)
	s.count.writeBytes.Add(uint64(d.total))
	w.written = d.total
	return true, s.marked(c, w, nil)
}

// repeated tells whether the store has the request already. Dirty data of its slot is written back
// before: the store takes all numbers up to the last one as applied.
func (s *Server) repeated(ctx context.Context, w *work) (bool, error) {
	t, a := &w.req.Target, &w.req.Args
	if !stripe.Numbered(t.Stamp) {
		return false, nil
	}
	if err := s.cfg.Cache.SettleStamp(ctx, t.Stamp); err != nil {
		return false, err
	}
	span := a.Access.Span()
	return s.cfg.Store.Admit(ctx, t.Object, span.Off, span.Len, t.Stamp, 0)
}

// writeParts stores the large pieces and then the rest, whose data is here and verified by then.
// The last step carries the request's number: if the store has it, it has everything else. So the
// rest is written through: if it were pending, and lost with its number, the large pieces would be
// sent again too, over what others have written since.
func (s *Server) writeParts(ctx context.Context, w *work) error {
	t, a, d := &w.req.Target, &w.req.Args, &w.direct
	draft, err := s.receiveNear(ctx, w)
	if err != nil {
		return err
	}
	if err := s.enterDisk(ctx, d.call, w, d.total); err != nil {
		if draft != nil {
			draft.Abort()
		}
		return err
	}
	defer s.leaveDisk(w)
	if err := s.storeFar(ctx, w, draft == nil); err != nil {
		if draft != nil {
			draft.Abort()
		}
		return err
	}
	if draft == nil {
		return nil
	}
	if err := s.writers.enter(t); err != nil {
		draft.Abort()
		return err
	}
	defer s.writers.leave(t)
	draft.Through()
	_, err = draft.Publish(ctx, t.Stamp, a.Durability)
	return err
}

// storeFar stores the large pieces. number: the last of them carries the request's.
func (s *Server) storeFar(ctx context.Context, w *work, number bool) error {
	t, a, d := &w.req.Target, &w.req.Args, &w.direct
	for i, p := range d.far {
		st, dur := t.Stamp, a.Durability
		if last := i == len(d.far)-1; !last || !number {
			st.Session, st.Slot, st.Seq = 0, 0, 0
			if !last {
				dur = stripe.Volatile
			}
		}
		d.at = p.at
		d.write = relay.WriteJob{Object: t.Object, Off: p.off, Bytes: p.n, How: relayHow(&t.How),
			From: d, Unchecked: t.How.NoSums, Stamp: st, Durability: dur}
		e, err := s.relay()
		if err == nil {
			err = e.Write(ctx, &d.write)
		}
		if err != nil {
			return err
		}
		s.count.directWrites.Add(uint64(p.n))
	}
	return nil
}

// receiveNear fetches the pieces that go through the cache. They begin and end at sums of the
// stream.
func (s *Server) receiveNear(ctx context.Context, w *work) (*unifier.Draft, error) {
	d, t := &w.direct, &w.req.Target
	if len(d.near) == 0 {
		return nil, nil
	}
	draft, err := s.cfg.Cache.Draft(ctx, t.Object, seg.List(d.near), hint(&t.How))
	if err != nil {
		return nil, err
	}
	if err = d.pullNear(ctx, draft.Sges()); err == nil && !t.How.NoSums {
		err = draft.Verify(d.nearSums(), iod.SumChunk)
	}
	if err != nil {
		draft.Abort()
		return nil, err
	}
	return draft, nil
}

func (d *direct) pullNear(ctx context.Context, into []fabric.Sge) error {
	rest := tape{list: into}
	for i, p := range d.near {
		d.part = rest.cut(d.part[:0], p.Len)
		if err := d.call.Pull(ctx, d.places[i], d.part); err != nil {
			return err
		}
	}
	return nil
}

// nearSums are the sums of the pieces that go through the cache, in d.blocks.
func (d *direct) nearSums() []uint32 {
	d.blocks = d.blocks[:0]
	next := int64(-1)
	for i, p := range d.near {
		first, last := d.places[i]/iod.SumChunk, (d.places[i]+p.Len-1)/iod.SumChunk
		for k := max(first, next); k <= last; k++ {
			d.blocks = append(d.blocks, d.sums[k])
		}
		next = last + 1
	}
	return d.blocks
}

// Fetch implements relay.Sender.
func (d *direct) Fetch(ctx context.Context, at int64, into []fabric.Sge) error {
	return d.call.Pull(ctx, d.at+at, into)
}

// Check implements relay.Sender: the chunk begins at a sum of the stream.
func (d *direct) Check(at int64, blocks []uint32) error {
	at += d.at
	end := min(at+int64(len(blocks))*crc32c.BlockBytes, d.total)
	for at < end {
		n := min(end-at, iod.SumChunk)
		k := relay.SumCount(n)
		if joinBlocks(blocks[:k], n) != d.sums[at/iod.SumChunk] {
			return errs.Newf(errs.Corrupt, "iod.Write", "",
				"%d bytes at %d of the request arrived with another checksum than they were sent with",
				n, at)
		}
		blocks, at = blocks[k:], at+n
	}
	return nil
}
