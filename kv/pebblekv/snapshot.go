package pebblekv

import (
	"errors"
	"io"
	"math"
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
	snap := &snapshot{store: s}
	snap.version.Store(uint64(s.shown.during(func() { snap.view = s.db.NewSnapshot() })))
	return snap
}

// snapshot implements kv.Snapshot.
type snapshot struct {
	store  *Store
	view   *pebble.Snapshot
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
	err := s.view.Close()
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
