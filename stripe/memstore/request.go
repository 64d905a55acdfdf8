package memstore

import (
	"context"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// request is a stamp together with what the store remembers of its session. An object asks and
// notes it under its own lock, so that a repeat that comes at the same time finds the note. (A slot
// carries one request after the other, and a repeat names the same object.)
type request struct {
	wire.Stamp
	more []wire.Stamp // further requests that are part of it
	s    *Store
}

func (s *Store) numbered(st wire.Stamp) request { return request{Stamp: st, s: s} }

func (r request) repeated() bool {
	if !r.s.seen.Repeated(r.Stamp) {
		return false
	}
	r.s.count.repeats.Add(1)
	return true
}

func (r request) applied() {
	r.s.seen.Note(r.Stamp)
	for _, st := range r.more {
		r.s.seen.Note(st)
	}
}

// Zero implements stripe.Zeroer.
func (s *Store) Zero(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	_ stripe.Durability) error {
	const op = "memstore.Zero"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return err
	}
	o, err := s.enterWriter(op, id, st, true)
	if err != nil {
		return err
	}
	defer s.mu.RUnlock()
	return o.zero(id, off, length, s.numbered(st))
}

func (o *object) zero(id stripe.ObjectID, off, length int64, st request) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if st.repeated() {
		return nil
	}
	if err := stripe.CheckStamp("memstore.Zero", id, o.truncSeq, st.Stamp); err != nil {
		return err
	}
	defer st.applied()
	o.changedLocked(st)
	o.dropLocked(off, min(length, o.size-off), false)
	if length > 0 {
		o.size = max(o.size, off+length)
	}
	return nil
}

// Stats implements stripe.Counter.
func (s *Store) Stats() stripe.Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := &s.count
	return stripe.Stats{
		Reads: c.reads.Load(), Writes: c.writes.Load(), Repeats: c.repeats.Load(),
		ReadBytes: c.readBytes.Load(), WriteBytes: c.writeBytes.Load(),
		CopiedBytes: c.readBytes.Load() + c.writeBytes.Load(), Objects: uint64(len(s.objects)),
		MemoryBytes: s.budget.total * pageBytes,
		MemoryUsed:  (s.budget.total - max(s.budget.left.Load(), 0)) * pageBytes,
	}
}
