// Package memkv is an engine of package kv in memory, for tests and for trying things out. It
// keeps the whole contract, and on request it misbehaves as engines and networks do: refused and
// failed commits, commits whose answer is lost, and crashes that drop what was not synced.
//
// It persists nothing: "disk" is the last state that was synced.
//
// Read memkv.go first, then tree.go for the persistent tree that makes snapshots free.
package memkv

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/engine"
)

const (
	op = "memkv.Commit"

	// changesBytes bounds the memory for range checks; the promise of kv.SinceWindow comes first.
	changesBytes = 1 << 20

	// replaySlots is twice the promise: a crash may take away half of them.
	replaySlots = 2 * kv.ReplayWindow
)

// Options makes a store misbehave. The functions are called without locks held, by the goroutine
// that commits, and must be safe for concurrent use. See Every and Seeded for ready-made ones.
type Options struct {
	// Before is asked before a transaction is looked at. Its error is returned and nothing is
	// applied: errs.Conflict, errs.Again, errs.MaybeDone ... Default: none.
	Before func(t *kv.Txn) error

	// After is asked after a transaction has taken effect as version v. Its error is returned in
	// place of success: errs.MaybeDone plays an answer that was lost. Default: none.
	After func(t *kv.Txn, v kv.Version) error

	// Disk is asked by every synced commit and every Sync. Its error makes the store read-only,
	// as a failed disk would. Default: none.
	Disk func() error
}

// state is one version of the store. It never changes.
type state struct {
	root    *node
	version kv.Version
}

// Store implements kv.Store.
type Store struct {
	opt Options

	mu      sync.Mutex
	now     state
	disk    state // what a crash leaves
	replay  *engine.Replay
	changes *engine.Changes
	given   kv.Version // the last number that was given out; larger than now.version after a crash
	failed  error      // set once, when the store became read-only
	closed  bool
}

// New returns an empty store.
func New(opt Options) *Store {
	return &Store{
		opt:     opt,
		replay:  engine.NewReplay(replaySlots),
		changes: engine.NewChanges(changesBytes, 0, 0),
	}
}

// Commit implements kv.Store. A ctx that has ended refuses the transaction; later it is not
// looked at.
func (s *Store) Commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	if err := t.Validate(); err != nil {
		return kv.Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return kv.Result{}, errs.Wrap(op, "", err)
	}
	if s.opt.Before != nil {
		if err := s.opt.Before(t); err != nil {
			return kv.Result{}, errs.Wrap(op, "", err)
		}
	}
	was, err := s.apply(t)
	if err != nil {
		return kv.Result{}, err
	}
	if t.Sync {
		if err := s.flush(); err != nil {
			return kv.Result{}, err
		}
	}
	if s.opt.After != nil {
		if err := s.opt.After(t, was.Version); err != nil {
			return kv.Result{}, errs.Wrap(op, "", err)
		}
	}
	return was, nil
}

// apply is the one ordered section: check against the current state, number, replace the state.
func (s *Store) apply(t *kv.Txn) (kv.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return kv.Result{}, err
	}
	if was, ok := s.replay.Find(t.ReqID); ok {
		return was, nil
	}
	if err := engine.Check(t, reader{s.now.root}, s.changes); err != nil {
		return kv.Result{}, err
	}
	v := s.given + 1
	root, err := effects(s.now.root, t, v)
	if err != nil {
		return kv.Result{}, err
	}
	r := kv.Result{Version: v, Answer: t.Answer}
	s.given, s.now = v, state{root, v}
	s.replay.Record(t.ReqID, r)
	s.changes.Record(v, t)
	return r, nil
}

// effects returns the tree after the puts, deletes and adds of t; root itself stays as it is.
func effects(root *node, t *kv.Txn, v kv.Version) (*node, error) {
	for i := range t.Puts {
		p := &t.Puts[i]
		root = root.put(newNode(p.Key, append([]byte{}, p.Value...), v))
	}
	for _, key := range t.Deletes {
		if root.get(key) != nil {
			root = root.remove(key)
		}
	}
	for i := range t.Adds {
		a := &t.Adds[i]
		var sum int64
		if n := root.get(a.Key); n != nil {
			var err error
			if sum, err = engine.Counter(a.Key, n.value, n.version); err != nil {
				return nil, err
			}
		}
		value := binary.BigEndian.AppendUint64(nil, uint64(sum+a.Delta))
		root = root.put(newNode(a.Key, value, v))
	}
	return root, nil
}

func newNode(key, value []byte, v kv.Version) *node {
	key = append([]byte(nil), key...)
	return &node{key: key, value: value, version: v, priority: priorityOf(key)}
}

// flush makes everything up to now survive a crash, or makes the store read-only.
func (s *Store) flush() error {
	var err error
	if s.opt.Disk != nil {
		err = s.opt.Disk()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil && err != nil {
		s.failed = errs.Newf(errs.KindOf(err), op, "",
			"the disk failed and the store is read-only: %w", err)
	}
	if err := s.usableLocked(); err != nil {
		return err
	}
	s.disk = s.now
	return nil
}

func (s *Store) usableLocked() error {
	if s.closed {
		return errs.New(errs.Closed, op, "", nil)
	}
	return s.failed
}

// Snapshot implements kv.Store.
func (s *Store) Snapshot() kv.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &snapshot{state: s.now, dead: s.closed}
}

// Sync implements kv.Store.
func (s *Store) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap("memkv.Sync", "", err)
	}
	return s.flush()
}

// Close implements kv.Store. What was in the store is gone.
func (s *Store) Close() error {
	err := s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return err
}

// Crash ends s as a power cut would, and returns a store with what was synced, with the same
// options and without a failed disk. Commits on s fail from then on; its snapshots stay readable.
func (s *Store) Crash() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.againLocked(s.disk)
}

// Reopen closes s and returns a store with all that was in it, as opening the same directory
// would.
func (s *Store) Reopen() (*Store, error) {
	if err := s.Close(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.againLocked(s.now), nil
}

func (s *Store) againLocked(st state) *Store {
	return &Store{
		opt:     s.opt,
		now:     st,
		disk:    st,
		replay:  s.replay.Until(st.version),
		changes: engine.NewChanges(changesBytes, st.version, s.given),
		given:   s.given,
	}
}
