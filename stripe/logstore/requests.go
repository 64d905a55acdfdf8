package logstore

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// part is what one member has of a request.
type part struct {
	member int
	off    int64
	bufs   [][]byte
	bytes  int64
}

// memberOf says which member holds an offset of the object. Objects begin on different ones.
func (s *Store) memberOf(id stripe.ObjectID, off int64) int {
	if len(s.members) == 1 {
		return 0
	}
	return int((uint64(off/chunkOfMember) + uint64(foldSeed(id, 0))) % uint64(len(s.members)))
}

// split cuts a request into parts that lie on one member each and are not longer than max.
func (s *Store) split(id stripe.ObjectID, bufs [][]byte, off, n, max int64) []part {
	var parts []part
	src := gather{bufs: bufs}
	for n > 0 {
		step := min(n, max-off%max)
		if len(s.members) > 1 {
			step = min(n, chunkOfMember-off%chunkOfMember)
		}
		p := part{member: s.memberOf(id, off), off: off, bytes: step}
		for left := step; left > 0; {
			b := src.next(int(left))
			p.bufs = append(p.bufs, b)
			left -= int64(len(b))
		}
		parts = append(parts, p)
		off += step
		n -= step
	}
	return parts
}

// each runs fn for all parts: those of one member one after the other, members at the same time.
func (s *Store) each(parts []part, fn func(m *member, p *part) error) error {
	if len(parts) == 1 {
		return fn(s.members[parts[0].member], &parts[0])
	}
	errs := make([]error, len(s.members))
	var wg sync.WaitGroup
	for i, m := range s.members {
		run := func() {
			for k := range parts {
				if parts[k].member == i && errs[i] == nil {
					errs[i] = fn(m, &parts[k])
				}
			}
		}
		if len(s.members) == 1 {
			run()
			break
		}
		wg.Go(run)
	}
	wg.Wait()
	return errors.Join(errs...)
}

// onAll runs fn on all members at the same time.
func (s *Store) onAll(fn func(m *member) error) error {
	if len(s.members) == 1 {
		return fn(s.members[0])
	}
	errs := make([]error, len(s.members))
	var wg sync.WaitGroup
	for i, m := range s.members {
		wg.Go(func() { errs[i] = fn(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ReadAt implements stripe.Store.
func (s *Store) ReadAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64) error {
	const op = "logstore.ReadAt"
	n := stripe.BufBytes(bufs)
	if err := stripe.CheckRange(ctx, op, id, off, n); err != nil {
		return err
	}
	s.count.reads.Add(1)
	s.count.readBytes.Add(uint64(n))
	if len(s.members) == 1 || n == 0 {
		return s.members[s.memberOf(id, off)].readAt(op, id, bufs, off, n)
	}
	return s.each(s.split(id, bufs, off, n, chunkOfMember), func(m *member, p *part) error {
		return m.readAt(op, id, p.bufs, p.off, p.bytes)
	})
}

func (m *member) readAt(op string, id stripe.ObjectID, bufs [][]byte, off, n int64) error {
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
		return m.lostObject(op, id)
	}
	return m.readPlanned(o, p, bufs, off, n)
}

// WriteAt implements stripe.Store. Up to 4 MiB on one member are one commit.
func (s *Store) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, d stripe.Durability) error {
	n := stripe.BufBytes(bufs)
	if err := stripe.CheckRange(ctx, "logstore.WriteAt", id, off, n); err != nil {
		return err
	}
	s.count.writes.Add(1)
	s.count.writeBytes.Add(uint64(n))
	if n == 0 {
		return s.members[s.memberOf(id, off)].touch(ctx, id, st, d)
	}
	if len(s.members) == 1 && off%chunkBytes+n <= chunkBytes {
		return s.members[0].write(ctx, id, bufs, off, n, st, d)
	}
	parts := s.split(id, bufs, off, n, chunkBytes)
	return s.each(parts, func(m *member, p *part) error {
		stamp := st
		if !s.isLast(parts, p) {
			stamp.Seq = 0 // the last one carries the number: then all are there
		}
		return m.write(ctx, id, p.bufs, p.off, p.bytes, stamp, d)
	})
}

// isLast tells whether no later part is on the same member.
func (s *Store) isLast(parts []part, p *part) bool {
	for i := len(parts) - 1; ; i-- {
		if parts[i].member == p.member {
			return &parts[i] == p
		}
	}
}

// touch is a write of nothing: it brings the object to life.
func (m *member) touch(ctx context.Context, id stripe.ObjectID, st wire.Stamp,
	d stripe.Durability) error {
	return m.clearRange(ctx, "logstore.WriteAt", id, 0, 0, true, st, d)
}

// Truncate implements stripe.Store.
func (s *Store) Truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	if err := stripe.CheckRange(ctx, "logstore.Truncate", id, size, 0); err != nil {
		return err
	}
	if st.TruncSeq == 0 && len(s.members) > 1 {
		// Without a number an absent object stays so; one that is there on some members is there.
		info, err := s.Stat(ctx, id)
		if err != nil {
			return err
		}
		if info == (stripe.Info{ID: id}) && !s.exists(id) {
			return nil
		}
		return s.onAll(func(m *member) error {
			return m.truncateTo(ctx, id, size, st, true)
		})
	}
	return s.onAll(func(m *member) error {
		return m.truncateTo(ctx, id, size, st, st.TruncSeq > 0)
	})
}

func (s *Store) exists(id stripe.ObjectID) bool {
	for _, m := range s.members {
		m.mu.Lock()
		o := m.objects[id]
		m.mu.Unlock()
		if o != nil {
			return true
		}
	}
	return false
}

// Punch implements stripe.Puncher.
func (s *Store) Punch(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	d stripe.Durability) error {
	const op = "logstore.Punch"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return err
	}
	return s.onAll(func(m *member) error {
		return m.clearRange(ctx, op, id, off, length, false, st, d)
	})
}

// Zero implements stripe.Zeroer.
func (s *Store) Zero(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	d stripe.Durability) error {
	const op = "logstore.Zero"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return err
	}
	return s.onAll(func(m *member) error {
		return m.clearRange(ctx, op, id, off, length, true, st, d)
	})
}

// Sync implements stripe.Store. The log is one for all objects, so that one sync serves all.
func (s *Store) Sync(ctx context.Context, id stripe.ObjectID) error {
	const op = "logstore.Sync"
	if err := ctx.Err(); err != nil {
		return errs.Wrap(op, "", err)
	}
	if id == (stripe.ObjectID{}) {
		id.Gen = ^uint32(0) // all objects: no fence concerns them
	}
	return s.onAll(func(m *member) error {
		if _, err := m.begin(op, id); err != nil {
			return err
		}
		defer m.end()
		_, _, err := m.barrier(true)
		return err
	})
}

// Remove implements stripe.Remover.
func (s *Store) Remove(ctx context.Context, id stripe.ObjectID) error {
	if err := stripe.CheckID(ctx, "logstore.Remove", id); err != nil {
		return err
	}
	return s.onAll(func(m *member) error { return m.remove(ctx, id) })
}

// SetMinGeneration implements stripe.Fencer.
func (s *Store) SetMinGeneration(ctx context.Context, file uint64, gen uint32) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap("logstore.SetMinGeneration", "", err)
	}
	return s.onAll(func(m *member) error { return m.setFence(ctx, file, gen) })
}
