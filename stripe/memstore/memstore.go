// Package memstore is a stripe engine in memory: sparse pages, bounded, gone with the process. It
// serves tests, and benchmarks that want a store without a disk. It keeps nothing across processes
// and has no faults of its own (see stripe/hook/fault).
//
// Read memstore.go first, then object.go for the pages.
package memstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Options of a store.
type Options struct {
	// MaxBytes bounds the memory of all pages, in bytes. Default 1 GiB. A write that needs more
	// is refused whole, with errs.NoSpace.
	MaxBytes int64
}

func (o Options) withDefaults() Options {
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 30
	}
	return o
}

func (o Options) validate() error {
	if o.MaxBytes < pageBytes {
		return errs.Newf(errs.Invalid, "memstore.New", "",
			"MaxBytes %d is less than one page of %d", o.MaxBytes, pageBytes)
	}
	return nil
}

// Store is the engine. Requests hold mu shared for as long as they run, and an object's own lock
// below it; what changes the set of objects or of fences holds mu exclusively, and so knows that no
// request is under way.
type Store struct {
	budget   budget
	verifier uint64
	life     atomic.Uint64

	mu      sync.RWMutex
	objects map[stripe.ObjectID]*object
	minGen  map[uint64]uint32
	epochs  map[uint64]uint32 // the minimal ones
	seen    stripe.Sessions
	closed  bool

	count counters
}

type counters struct {
	reads, writes, readBytes, writeBytes, repeats atomic.Uint64
}

var _ stripe.Engine = (*Store)(nil)

// New makes an empty store.
func New(o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		verifier: rand.Uint64(),
		objects:  map[stripe.ObjectID]*object{},
		minGen:   map[uint64]uint32{},
		epochs:   map[uint64]uint32{},
	}
	s.life.Store(1 << stripe.LifeBits)
	s.budget.left.Store(o.MaxBytes / pageBytes)
	s.budget.total = o.MaxBytes / pageBytes
	return s, nil
}

// Reopen opens a closed store again with everything in it, as a restart of a server would. It is
// for tests.
func (s *Store) Reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = false
	s.life.Store((s.life.Load()>>stripe.LifeBits + 1) << stripe.LifeBits)
}

// enter takes mu shared and finds the object, nil when it is absent. The caller unlocks mu unless
// there is an error.
func (s *Store) enter(op string, id stripe.ObjectID) (*object, error) {
	s.mu.RLock()
	err := s.admitLocked(op, id)
	if err != nil {
		s.mu.RUnlock()
		return nil, err
	}
	return s.objects[id], nil
}

func (s *Store) admitLocked(op string, id stripe.ObjectID) error {
	if s.closed {
		return errs.New(errs.Closed, op, "", nil)
	}
	return stripe.CheckFence(op, id, s.minGen[id.File])
}

// enterWriter is enter, or enterAlive, for a writer, whose epoch must not be fenced.
func (s *Store) enterWriter(op string, id stripe.ObjectID, st wire.Stamp, create bool) (
	*object, error) {
	o, err := s.enter(op, id)
	if err != nil {
		return nil, err
	}
	err = stripe.CheckEpoch(op, id, s.epochs[id.File], st)
	if err == nil && o == nil && create {
		s.mu.RUnlock()
		if o, err = s.enterAlive(op, id); err != nil {
			return nil, err
		}
		err = stripe.CheckEpoch(op, id, s.epochs[id.File], st)
	}
	if err != nil {
		s.mu.RUnlock()
		return nil, err
	}
	return o, nil
}

// enterAlive is enter that brings an absent object to life.
func (s *Store) enterAlive(op string, id stripe.ObjectID) (*object, error) {
	for {
		o, err := s.enter(op, id)
		if o != nil || err != nil {
			return o, err
		}
		s.mu.RUnlock()
		s.mu.Lock()
		err = s.admitLocked(op, id)
		if err == nil && s.objects[id] == nil {
			s.objects[id] = &object{budget: &s.budget, pages: map[int64]*page{}}
		}
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// ReadAt implements stripe.Store.
func (s *Store) ReadAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64) error {
	const op = "memstore.ReadAt"
	if err := stripe.CheckRange(ctx, op, id, off, stripe.BufBytes(bufs)); err != nil {
		return err
	}
	o, err := s.enter(op, id)
	if err != nil {
		return err
	}
	defer s.mu.RUnlock()
	s.read(o, bufs, off)
	return nil
}

// read counts and reads. The caller holds mu shared.
func (s *Store) read(o *object, bufs [][]byte, off int64) {
	s.count.reads.Add(1)
	s.count.readBytes.Add(uint64(stripe.BufBytes(bufs)))
	if o == nil {
		for _, b := range bufs {
			clear(b)
		}
		return
	}
	o.read(bufs, off)
}

// WriteAt implements stripe.Store. Volatile and durable are the same here.
func (s *Store) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, _ stripe.Durability) error {
	const op = "memstore.WriteAt"
	return s.write(ctx, op, id, bufs, off, s.numbered(st))
}

func (s *Store) write(ctx context.Context, op string, id stripe.ObjectID, bufs [][]byte, off int64,
	st request) error {
	n := stripe.BufBytes(bufs)
	if err := stripe.CheckRange(ctx, op, id, off, n); err != nil {
		return err
	}
	o, err := s.enterWriter(op, id, st.Stamp, true)
	if err != nil {
		return err
	}
	defer s.mu.RUnlock()
	s.count.writes.Add(1)
	s.count.writeBytes.Add(uint64(n))
	if err := o.write(id, bufs, off, n, st); err != nil {
		return errs.Wrap(op, "object "+id.String(), err)
	}
	return nil
}

// Truncate implements stripe.Store.
func (s *Store) Truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	const op = "memstore.Truncate"
	if err := stripe.CheckRange(ctx, op, id, size, 0); err != nil {
		return err
	}
	enter := s.enterAlive
	if st.TruncSeq == 0 {
		enter = s.enter
	}
	o, err := enter(op, id)
	if err != nil {
		return err
	}
	defer s.mu.RUnlock()
	if o == nil {
		return nil
	}
	return o.truncate(id, size, s.numbered(st))
}

// Punch implements stripe.Puncher.
func (s *Store) Punch(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	_ stripe.Durability) error {
	const op = "memstore.Punch" // of a numbered one somebody must remember the number
	return s.changeRange(ctx, op, id, off, length, st, stripe.Numbered(st), func(o *object) error {
		return o.clear(op, id, off, length, s.numbered(st), false)
	})
}

// Sync implements stripe.Store: memory is as stable as it gets.
func (s *Store) Sync(ctx context.Context, id stripe.ObjectID) error {
	const op = "memstore.Sync"
	if err := ctx.Err(); err != nil {
		return errs.Wrap(op, "", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if id == (stripe.ObjectID{}) {
		if s.closed {
			return errs.New(errs.Closed, op, "", nil)
		}
		return nil
	}
	return s.admitLocked(op, id)
}

// Close implements stripe.Store. Closing twice is allowed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
