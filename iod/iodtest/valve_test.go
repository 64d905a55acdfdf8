package iodtest

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// valve stands between a server and its store. Shut, it lets nothing through: what a process that
// was killed has not written by then is never written. Calls that have begun are carried out.
type valve struct {
	stripe.Engine

	mu     sync.RWMutex
	closed bool
}

func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
}

// enter holds the valve open until the returned function is called.
func (v *valve) enter() (leave func(), err error) {
	v.mu.RLock()
	if v.closed {
		v.mu.RUnlock()
		return nil, errs.Newf(errs.Shutdown, "valve", "", "the server is dead")
	}
	return v.mu.RUnlock, nil
}

func (v *valve) through(fn func() error) error {
	leave, err := v.enter()
	if err != nil {
		return err
	}
	defer leave()
	return fn()
}

func (v *valve) ReadAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64) error {
	return v.through(func() error { return v.Engine.ReadAt(ctx, id, bufs, off) })
}

func (v *valve) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, d stripe.Durability) error {
	return v.through(func() error { return v.Engine.WriteAt(ctx, id, bufs, off, st, d) })
}

func (v *valve) Truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	return v.through(func() error { return v.Engine.Truncate(ctx, id, size, st) })
}

func (v *valve) Sync(ctx context.Context, id stripe.ObjectID) error {
	return v.through(func() error { return v.Engine.Sync(ctx, id) })
}

func (v *valve) Remove(ctx context.Context, id stripe.ObjectID) error {
	return v.through(func() error { return v.Engine.Remove(ctx, id) })
}

func (v *valve) Punch(ctx context.Context, id stripe.ObjectID, off, n int64, st wire.Stamp,
	d stripe.Durability) error {
	return v.through(func() error { return v.Engine.Punch(ctx, id, off, n, st, d) })
}

func (v *valve) Zero(ctx context.Context, id stripe.ObjectID, off, n int64, st wire.Stamp,
	d stripe.Durability) error {
	return v.through(func() error { return v.Engine.Zero(ctx, id, off, n, st, d) })
}

func (v *valve) SetMinGeneration(ctx context.Context, file uint64, gen uint32) error {
	return v.through(func() error { return v.Engine.SetMinGeneration(ctx, file, gen) })
}

func (v *valve) ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	return v.through(func() error { return v.Engine.ReadSums(ctx, id, bufs, off, sums) })
}

func (v *valve) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, d stripe.Durability) error {
	return v.through(func() error {
		return v.Engine.WriteSums(ctx, id, bufs, off, sums, stamps, d)
	})
}

func (v *valve) Admit(ctx context.Context, id stripe.ObjectID, off, n int64, st wire.Stamp,
	space int64) (repeated bool, err error) {
	err = v.through(func() error {
		repeated, err = v.Engine.Admit(ctx, id, off, n, st, space)
		return err
	})
	return repeated, err
}
