package logstore

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// memberOf says which member holds an offset of the object. Objects begin on different ones.
func (s *Store) memberOf(id stripe.ObjectID, off int64) int {
	if len(s.members) == 1 {
		return 0
	}
	return int((uint64(off/s.unit) + uint64(foldSeed(id, 0))) % uint64(len(s.members)))
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
		return m.clearRange(ctx, op, id, off, length, clearsHole, st, d)
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
		return m.clearRange(ctx, op, id, off, length, clearsExtend, st, d)
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
	return s.onAll(func(m *member) error {
		return m.setFence(ctx, "logstore.SetMinGeneration", file, bar{gen: gen})
	})
}

// SetMinEpoch implements stripe.Fencer.
func (s *Store) SetMinEpoch(ctx context.Context, file uint64, epoch uint32) error {
	const op = "logstore.SetMinEpoch"
	if err := ctx.Err(); err != nil {
		return errs.Wrap(op, "", err)
	}
	return s.onAll(func(m *member) error { return m.setFence(ctx, op, file, bar{epoch: epoch}) })
}

// MinEpoch implements stripe.Fencer.
func (s *Store) MinEpoch(file uint64) (epoch uint32) {
	for _, m := range s.members {
		m.mu.Lock()
		epoch = max(epoch, m.fences[file].epoch)
		m.mu.Unlock()
	}
	return epoch
}
