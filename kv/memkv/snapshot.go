package memkv

import (
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// snapshot implements kv.Snapshot. It is only a root; closing it merely catches late use.
type snapshot struct {
	state
	dead   bool // taken after the store was closed
	closed atomic.Bool
}

func (s *snapshot) Version() kv.Version { return s.version }

func (s *snapshot) Get(key []byte) ([]byte, kv.Version, error) {
	if err := s.usable("memkv.Get"); err != nil {
		return nil, 0, err
	}
	n := s.root.get(key)
	if n == nil {
		return nil, 0, nil
	}
	return n.value, n.version, nil
}

func (s *snapshot) Scan(start, end []byte, fn func(key, value []byte, v kv.Version) bool) error {
	if err := s.usable("memkv.Scan"); err != nil {
		return err
	}
	s.root.walk(start, end, func(n *node) bool { return fn(n.key, n.value, n.version) })
	return nil
}

func (s *snapshot) Close() error {
	if s.closed.Swap(true) {
		return errs.New(errs.Closed, "memkv.Snapshot.Close", "", nil)
	}
	return nil
}

func (s *snapshot) usable(op string) error {
	if s.dead || s.closed.Load() {
		return errs.New(errs.Closed, op, "", nil)
	}
	return nil
}

// reader is the current state for engine.Check.
type reader struct{ root *node }

func (r reader) VersionOf(key []byte) (kv.Version, error) {
	if n := r.root.get(key); n != nil {
		return n.version, nil
	}
	return 0, nil
}

func (r reader) AnyIn(start, end []byte) (bool, error) {
	any := false
	r.root.walk(start, end, func(*node) bool { any = true; return false })
	return any, nil
}
