package logstore

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// The requests that move data. What lies on one member goes straight to it; the rest is a fan.

// ReadAt implements stripe.Store.
func (s *Store) ReadAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64) error {
	return s.read(ctx, "logstore.ReadAt", id, bufs, off, nil)
}

// ReadSums implements stripe.Summer. The sums are those that the blocks were verified with.
func (s *Store) ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	const op = "logstore.ReadSums"
	if err := stripe.CheckSums(op, id, off, stripe.BufBytes(bufs), sums); err != nil {
		return err
	}
	return s.read(ctx, op, id, bufs, off, sums)
}

func (s *Store) read(ctx context.Context, op string, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	n := stripe.BufBytes(bufs)
	if err := stripe.CheckRange(ctx, op, id, off, n); err != nil {
		return err
	}
	s.count.reads.Add(1)
	s.count.readBytes.Add(uint64(n))
	if s.together(off, n) {
		return s.members[s.memberOf(id, off)].readAt(op, id, bufs, off, n, sums)
	}
	f := s.fan()
	defer s.endFan(f)
	f.op, f.id, f.in = op, id, input{bufs: bufs, off: off, n: n, sums: sums}
	f.split(f.in.n)
	return f.run(readLanes, func(f *fan, m *member, p *part) error {
		return m.readAt(f.op, f.id, p.bufs, p.off, p.n, p.sums)
	})
}

// readAt reads n bytes that are all on the member.
func (m *member) readAt(op string, id stripe.ObjectID, bufs [][]byte, off, n int64,
	sums []uint32) error {
	m.life.RLock()
	defer m.life.RUnlock()
	p := plans.Get().(*plan)
	defer plans.Put(p)
	m.mu.Lock() // once for a read that meets nothing unusual
	o, err := m.findLocked(op, id)
	if o != nil && err == nil {
		m.lookUpLocked(o, p, off, n)
	}
	m.mu.Unlock()
	switch {
	case err != nil:
		return err
	case o == nil:
		for _, b := range bufs {
			clear(b)
		}
		for i := range sums {
			sums[i] = crc32c.ZeroBlock
		}
		return m.lostObject(op, id)
	}
	if !m.opt.unsummed {
		p.out, p.first = sums, off/blockBytes
	}
	err = m.readPlanned(o, p, bufs, off, n)
	p.out = nil // no memory of the caller's is kept
	if m.opt.unsummed && err == nil {
		from := gather{bufs: bufs}
		for i := range sums {
			sums[i] = from.plainSum()
		}
	}
	return err
}

// WriteAt implements stripe.Store. Up to 4 MiB on one member are one commit.
func (s *Store) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, d stripe.Durability) error {
	in := input{bufs: bufs, off: off, n: stripe.BufBytes(bufs), st: st, d: d}
	return s.write(ctx, "logstore.WriteAt", id, &in)
}

// WriteSums implements stripe.Summer. The stamps are in the record of the data, or in the last one
// of each member where there are several.
func (s *Store) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, d stripe.Durability) error {
	const op = "logstore.WriteSums"
	in := input{bufs: bufs, off: off, n: stripe.BufBytes(bufs), sums: sums, d: d}
	if sums != nil {
		if err := stripe.CheckSums(op, id, off, in.n, sums); err != nil {
			return err
		}
	}
	var err error
	if in.st, in.more, err = stripe.SplitStamps(op, id, stamps); err != nil {
		return err
	}
	return s.write(ctx, op, id, &in)
}

func (s *Store) write(ctx context.Context, op string, id stripe.ObjectID, in *input) error {
	if err := stripe.CheckRange(ctx, op, id, in.off, in.n); err != nil {
		return err
	}
	s.count.writes.Add(1)
	s.count.writeBytes.Add(uint64(in.n))
	m := s.members[s.memberOf(id, in.off)]
	switch {
	case in.n == 0: // it brings the object to life
		return m.clearWith(ctx, op, id, 0, 0, clearsExtend, in)
	case s.together(in.off, in.n) && in.off%chunkBytes+in.n <= chunkBytes:
		return m.write(ctx, id, in)
	}
	f := s.fan()
	defer s.endFan(f)
	f.ctx, f.op, f.id, f.in = ctx, op, id, *in
	f.split(chunkBytes)
	return f.run(1, func(f *fan, m *member, p *part) error {
		in := f.in
		in.bufs, in.off, in.n, in.sums = p.bufs, p.off, p.n, p.sums
		if !p.last {
			if m.sessions.Repeated(in.st) {
				return nil // the last one will tell, and nothing is applied again
			}
			in.st.Seq, in.more = 0, nil // the last one carries the numbers: then all are there
		}
		return m.write(f.ctx, f.id, &in)
	})
}

// Admit implements stripe.Admitter. Every member that holds a part must have applied the request
// for it to be a repeat: one that has not still needs its part.
func (s *Store) Admit(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	space int64) (repeated bool, err error) {
	const op = "logstore.Admit"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return false, err
	}
	first, n := off/s.unit, int64(1)
	if length > 0 {
		n = min((off+length-1)/s.unit-first+1, int64(len(s.members)))
	}
	repeated = true
	for i := range n {
		m := s.members[s.memberOf(id, (first+i)*s.unit)]
		known, err := m.foresee(op, id, st, space)
		if err != nil {
			return false, err
		}
		repeated = repeated && known
	}
	return repeated, nil
}

// foresee tells what a member would say to a write.
func (m *member) foresee(op string, id stripe.ObjectID, st wire.Stamp,
	space int64) (repeated bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, err := m.findLocked(op, id)
	if err == nil {
		err = m.checkEpochLocked(op, id, st.Epoch)
	}
	if err == nil {
		err = m.writableLocked()
	}
	if err == nil && m.sessions.Repeated(st) {
		return true, nil
	}
	if err == nil && o != nil {
		err = stripe.CheckStamp(op, id, o.truncSeq, st)
	}
	if err != nil {
		return false, err
	}
	need := (space + clusterBytes - 1) / clusterBytes
	slots := int64(len(m.slots.free)) + int64(m.g.slots) - int64(m.slots.high)
	if need <= int64(m.alloc.free) && need <= slots { // the device is not asked
		return false, nil
	}
	if free := m.roomLocked(); need > free || need > slots {
		return false, errs.Newf(errs.NoSpace, op, m.dev.Name(), "%d clusters and %d slots are free, "+
			"%d would be needed", free, slots, need)
	}
	return false, nil
}

// roomLocked is how many clusters can be had without a checkpoint.
func (m *member) roomLocked() int64 {
	return int64(m.alloc.free) + m.room.clusters(m.alloc.bare, m.room.reserve)
}

// Place implements stripe.Placer.
func (s *Store) Place(id stripe.ObjectID, off int64) (member int, run int64) {
	if len(s.members) == 1 {
		return 0, max(stripe.MaxObjectBytes-off, 1)
	}
	return s.memberOf(id, off), s.unit - off%s.unit
}

// Members implements stripe.Placer.
func (s *Store) Members() int { return len(s.members) }
