package iodtest

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// valve stands between a server and its store. Shut, it lets nothing through: what a process that
// was killed has not written by then is never written. Calls that have begun are carried out.
type valve struct {
	stripe.Engine
	seen *trace // nil: nobody looks

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

func (v *valve) note(x traced) {
	if v.seen != nil {
		v.seen.add(x)
	}
}

func (v *valve) through(fn func() error) error {
	leave, err := v.enter()
	if err != nil {
		return err
	}
	defer leave()
	return fn()
}

// NewLife is for the living: what a dead server still runs through must not end the life of the
// next one on the same store.
func (v *valve) NewLife() {
	err := v.through(func() error { v.Engine.NewLife(); return nil })
	v.note(traced{what: "new life", err: err})
}

func (v *valve) ReadAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64) error {
	return v.through(func() error { return v.Engine.ReadAt(ctx, id, bufs, off) })
}

func (v *valve) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, d stripe.Durability) error {
	err := v.through(func() error { return v.Engine.WriteAt(ctx, id, bufs, off, st, d) })
	v.note(wrote("write", id, bufs, off, []wire.Stamp{st}, err))
	return err
}

func (v *valve) Truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	err := v.through(func() error { return v.Engine.Truncate(ctx, id, size, st) })
	v.note(traced{what: "truncation", id: id, off: size, n: math.MaxInt64 - size, err: err})
	return err
}

func (v *valve) Sync(ctx context.Context, id stripe.ObjectID) error {
	err := v.through(func() error { return v.Engine.Sync(ctx, id) })
	v.note(traced{what: "sync", id: id, err: err})
	return err
}

func (v *valve) Remove(ctx context.Context, id stripe.ObjectID) error {
	err := v.through(func() error { return v.Engine.Remove(ctx, id) })
	v.note(traced{what: "removal", id: id, err: err})
	return err
}

func (v *valve) Punch(ctx context.Context, id stripe.ObjectID, off, n int64, st wire.Stamp,
	d stripe.Durability) error {
	err := v.through(func() error { return v.Engine.Punch(ctx, id, off, n, st, d) })
	v.note(traced{what: "punch", id: id, off: off, n: n, stamps: []wire.Stamp{st}, err: err})
	return err
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
	err := v.through(func() error {
		return v.Engine.WriteSums(ctx, id, bufs, off, sums, stamps, d)
	})
	v.note(wrote(fmt.Sprintf("write, durability %d,", d), id, bufs, off, stamps, err))
	return err
}

func (v *valve) Admit(ctx context.Context, id stripe.ObjectID, off, n int64, st wire.Stamp,
	space int64) (repeated bool, err error) {
	err = v.through(func() error {
		repeated, err = v.Engine.Admit(ctx, id, off, n, st, space)
		return err
	})
	v.note(traced{what: fmt.Sprintf("asked, repeated %v,", repeated), id: id, off: off, n: n,
		stamps: []wire.Stamp{st}, err: err})
	return repeated, err
}
