package fault

import (
	"context"

	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// ReadAt implements stripe.Store.
func (e *Engine) ReadAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64) error {
	return e.do(ctx, Read, id, func() error { return e.below.ReadAt(ctx, id, bufs, off) })
}

// WriteAt implements stripe.Store.
func (e *Engine) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, d stripe.Durability) error {
	return e.do(ctx, Write, id, func() error {
		return e.below.WriteAt(ctx, id, bufs, off, st, d)
	})
}

// ReadSums implements stripe.Summer: a read to the rules.
func (e *Engine) ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	return e.do(ctx, Read, id, func() error { return e.below.ReadSums(ctx, id, bufs, off, sums) })
}

// WriteSums implements stripe.Summer: a write to the rules.
func (e *Engine) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, d stripe.Durability) error {
	return e.do(ctx, Write, id, func() error {
		return e.below.WriteSums(ctx, id, bufs, off, sums, stamps, d)
	})
}

// Admit implements stripe.Admitter.
func (e *Engine) Admit(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	space int64) (repeated bool, err error) {
	err = e.do(ctx, Admit, id, func() error {
		repeated, err = e.below.Admit(ctx, id, off, length, st, space)
		return err
	})
	return repeated && err == nil, err
}

// Truncate implements stripe.Store.
func (e *Engine) Truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	return e.do(ctx, Truncate, id, func() error { return e.below.Truncate(ctx, id, size, st) })
}

// Sync implements stripe.Store.
func (e *Engine) Sync(ctx context.Context, id stripe.ObjectID) error {
	return e.do(ctx, Sync, id, func() error { return e.below.Sync(ctx, id) })
}

// Remove implements stripe.Remover.
func (e *Engine) Remove(ctx context.Context, id stripe.ObjectID) error {
	return e.do(ctx, Remove, id, func() error { return e.below.Remove(ctx, id) })
}

// Punch implements stripe.Puncher.
func (e *Engine) Punch(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	d stripe.Durability) error {
	return e.do(ctx, Punch, id, func() error {
		return e.below.Punch(ctx, id, off, length, st, d)
	})
}

// Zero implements stripe.Zeroer.
func (e *Engine) Zero(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	d stripe.Durability) error {
	return e.do(ctx, Zero, id, func() error {
		return e.below.Zero(ctx, id, off, length, st, d)
	})
}

// Reserve implements stripe.Reserver.
func (e *Engine) Reserve(ctx context.Context, id stripe.ObjectID, r stripe.Reservation,
	st wire.Stamp) (end int64, fresh []seg.Piece, err error) {
	err = e.do(ctx, Reserve, id, func() error {
		end, fresh, err = e.below.Reserve(ctx, id, r, st)
		return err
	})
	return end, fresh, err
}

// Release implements stripe.Reserver.
func (e *Engine) Release(ctx context.Context, id stripe.ObjectID, off, length int64,
	st wire.Stamp) error {
	return e.do(ctx, Release, id, func() error {
		return e.below.Release(ctx, id, off, length, st)
	})
}

// Blank implements stripe.Reserver.
func (e *Engine) Blank(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	d stripe.Durability) error {
	return e.do(ctx, Blank, id, func() error {
		return e.below.Blank(ctx, id, off, length, st, d)
	})
}

// Stat implements stripe.Stater.
func (e *Engine) Stat(ctx context.Context, id stripe.ObjectID) (info stripe.Info, err error) {
	err = e.do(ctx, Stat, id, func() error {
		info, err = e.below.Stat(ctx, id)
		return err
	})
	return info, err
}

// Map implements stripe.Mapper.
func (e *Engine) Map(ctx context.Context, id stripe.ObjectID, off, length int64,
	max int) (list []stripe.Extent, err error) {
	err = e.do(ctx, Map, id, func() error {
		list, err = e.below.Map(ctx, id, off, length, max)
		return err
	})
	return list, err
}

// List implements stripe.Lister.
func (e *Engine) List(ctx context.Context, fn func(stripe.Info) bool) error {
	return e.do(ctx, List, stripe.ObjectID{}, func() error { return e.below.List(ctx, fn) })
}

// SetMinGeneration implements stripe.Fencer.
func (e *Engine) SetMinGeneration(ctx context.Context, file uint64, gen uint32) error {
	return e.do(ctx, Fence, stripe.ObjectID{File: file, Gen: gen}, func() error {
		return e.below.SetMinGeneration(ctx, file, gen)
	})
}

// SetMinEpoch implements stripe.Fencer.
func (e *Engine) SetMinEpoch(ctx context.Context, file uint64, epoch uint32) error {
	return e.do(ctx, Fence, stripe.ObjectID{File: file}, func() error {
		return e.below.SetMinEpoch(ctx, file, epoch)
	})
}

// MinEpoch implements stripe.Fencer.
func (e *Engine) MinEpoch(file uint64) uint32 { return e.below.MinEpoch(file) }

// Place, Members, Verifier, Life, NewLife, Space, Stats and Close pass through: no rule concerns
// them.

// Place implements stripe.Placer.
func (e *Engine) Place(id stripe.ObjectID, off int64) (member int, run int64) {
	return e.below.Place(id, off)
}

// Members implements stripe.Placer.
func (e *Engine) Members() int { return e.below.Members() }

// Verifier implements stripe.Keeper.
func (e *Engine) Verifier() uint64 { return e.below.Verifier() }

// Life implements stripe.Keeper.
func (e *Engine) Life() uint64 { return e.below.Life() }

// NewLife implements stripe.Keeper.
func (e *Engine) NewLife() { e.below.NewLife() }

// Space implements stripe.Spacer.
func (e *Engine) Space() (stripe.Space, error) { return e.below.Space() }

// Stats implements stripe.Counter.
func (e *Engine) Stats() stripe.Stats { return e.below.Stats() }

// Close implements stripe.Store.
func (e *Engine) Close() error { return e.below.Close() }
