package pebblekv

import (
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// Snapshot implements kv.Store. It takes no part in the order of commits and never waits for
// them.
func (s *Store) Snapshot() kv.Snapshot {
	s.life.RLock()
	defer s.life.RUnlock()
	switch {
	case s.closed:
		return deadSnapshot{errs.New(errs.Closed, "pebblekv.Snapshot", s.opt.Dir, nil)}
	case s.db == nil:
		return deadSnapshot{s.absent}
	}
	s.snaps.Add(1)
	snap := &snapshot{store: s, view: s.latest.take(s)}
	snap.version.Store(uint64(snap.view.version))
	return snap
}

// latest is the view that snapshots share until the next commit: making one, and above all closing
// it, which has pebble look for compactions, costs more than most of what is read through it. It is
// given up before a commit becomes visible, so that it never keeps old data from being compacted.
type latest struct {
	mu   sync.Mutex
	view *sharedView // nil: nobody has looked since the last commit
}

// sharedView is a view of pebble's with its users counted.
type sharedView struct {
	*pebble.Snapshot
	version kv.Version // 0: not known, because a commit was under way
	users   int        // under latest.mu
}

// take returns a view of what is visible now. It must be given back.
func (l *latest) take(s *Store) *sharedView {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.view; v != nil {
		v.users++
		return v
	}
	v := &sharedView{users: 1}
	v.version = s.shown.during(func() { v.Snapshot = s.db.NewSnapshot() })
	if v.version != 0 {
		v.users++
		l.view = v
	}
	return v
}

// giveBack ends a use of a view, and with the last one the view.
func (l *latest) giveBack(v *sharedView) error {
	l.mu.Lock()
	v.users--
	last := v.users == 0
	l.mu.Unlock()
	if !last {
		return nil
	}
	return v.Snapshot.Close()
}

// drop has the next snapshot make a new view.
func (l *latest) drop() error {
	l.mu.Lock()
	v := l.view
	l.view = nil
	l.mu.Unlock()
	if v == nil {
		return nil
	}
	return l.giveBack(v)
}

// snapshot implements kv.Snapshot.
type snapshot struct {
	store  *Store
	view   *sharedView
	closed atomic.Bool

	version atomic.Uint64 // 0: nobody has asked yet
}

// Version implements kv.Snapshot: the view itself holds the number of its last commit. It is read
// where a commit was under way when the view was made.
func (s *snapshot) Version() kv.Version {
	if v := s.version.Load(); v != 0 {
		return kv.Version(v)
	}
	v, _, err := getVersion(s.view, keyLast)
	if err != nil {
		// A version that no commit reaches: as Since it can only conflict, never pass wrongly.
		s.store.opt.Log.Error("the version of a snapshot cannot be read", "err", err)
		v = math.MaxUint64
	}
	s.version.Store(uint64(v))
	return v
}

func (s *snapshot) Get(key []byte) ([]byte, kv.Version, error) {
	if s.closed.Load() {
		return nil, 0, errs.New(errs.Closed, "pebblekv.Get", "", nil)
	}
	return get(s.view, key)
}

func (s *snapshot) Scan(start, end []byte, fn func(key, value []byte, v kv.Version) bool) error {
	if s.closed.Load() {
		return errs.New(errs.Closed, "pebblekv.Scan", "", nil)
	}
	return scan(s.view, start, end, fn)
}

func (s *snapshot) Close() error {
	if s.closed.Swap(true) {
		return errs.New(errs.Closed, "pebblekv.Snapshot.Close", "", nil)
	}
	err := s.store.latest.giveBack(s.view)
	s.store.snaps.Add(-1)
	return errs.Wrap("pebblekv.Snapshot.Close", "", err)
}

// deadSnapshot is a snapshot of a store that is closed, or could not be opened again.
type deadSnapshot struct{ err error }

func (deadSnapshot) Version() kv.Version { return 0 }

func (d deadSnapshot) Get([]byte) ([]byte, kv.Version, error) { return nil, 0, d.err }

func (d deadSnapshot) Scan(_, _ []byte, _ func(_, _ []byte, _ kv.Version) bool) error {
	return d.err
}

func (deadSnapshot) Close() error { return nil }

// view is what a snapshot and the current state have in common.
type view interface {
	Get(key []byte) ([]byte, io.Closer, error)
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

// told gives an error of pebble its kind: a block that does not verify is errs.Corrupt.
func told(op string, err error) error {
	if pebble.IsCorruptionError(err) {
		return errs.New(errs.Corrupt, op, "", err)
	}
	return errs.Wrap(op, "", err)
}

// peek calls fn with the stored bytes of a key, if it exists; they are valid only during the
// call.
func peek(r view, key []byte, fn func(b []byte) error) (bool, error) {
	b, c, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, told("pebblekv.Get", err)
	}
	if err := fn(b); err != nil {
		_ = c.Close()
		return true, err
	}
	return true, errs.Wrap("pebblekv.Get", "", c.Close())
}

// get returns a copy of a user's value, and its version; nil and 0 if there is none.
func get(r view, key []byte) (value []byte, v kv.Version, err error) {
	_, err = peek(r, userKey(key), func(b []byte) error {
		var err error
		if v, b, err = parseValue(b); err == nil {
			value = append(make([]byte, 0, len(b)), b...)
		}
		return err
	})
	return value, v, err
}

// getVersion reads "last" or "ceiling" and tells whether it is there.
func getVersion(r view, key string) (v kv.Version, ok bool, err error) {
	ok, err = peek(r, []byte(key), func(b []byte) error {
		var err error
		v, err = parseVersion(b)
		return err
	})
	return v, ok, err
}

func scan(
	r view, start, end []byte, fn func(key, value []byte, v kv.Version) bool,
) error {
	lower, upper := userBounds(start, end)
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return told("pebblekv.Scan", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		b, err := it.ValueAndErr()
		if err != nil {
			break // Close returns it
		}
		v, value, err := parseValue(b)
		if err != nil {
			_ = it.Close()
			return err
		}
		if !fn(it.Key()[1:], value, v) {
			break
		}
	}
	return told("pebblekv.Scan", it.Close())
}

// reader is the current state for engine.Check: what pebble has, after what the group has listed so
// far was written, where that matters.
type reader struct {
	view
	g *group
}

func (r reader) VersionOf(key []byte) (v kv.Version, err error) {
	if err := r.g.writeFor(key); err != nil {
		return 0, err
	}
	_, err = peek(r.view, userKey(key), func(b []byte) error {
		var err error
		v, _, err = parseValue(b)
		return err
	})
	return v, err
}

func (r reader) AnyIn(start, end []byte) (any bool, err error) {
	if err := r.g.write(); err != nil {
		return false, err
	}
	err = scan(r.view, start, end, func(_, _ []byte, _ kv.Version) bool {
		any = true
		return false
	})
	return any, err
}
