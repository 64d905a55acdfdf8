// Package arenas is a set of arenas that is looked at all the time and seldom changed.
package arenas

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// Set is the set; the zero value is empty. Safe for concurrent use; Find takes no lock.
type Set struct {
	mu  sync.Mutex // of those who change it
	all atomic.Pointer[[]*mem.Arena]
}

// Add adds an arena.
func (s *Set) Add(a *mem.Arena) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := append(slices.Clone(s.list()), a)
	s.all.Store(&next)
}

// Remove takes an arena out.
func (s *Set) Remove(a *mem.Arena) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(s.list()), func(o *mem.Arena) bool { return o == a })
	s.all.Store(&next)
}

func (s *Set) list() []*mem.Arena {
	if all := s.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Find returns the arena that memory lies in; nil for none.
func (s *Set) Find(b []byte) *mem.Arena {
	for _, a := range s.list() { // there are few
		if fabric.OffsetIn(a.Bytes(), b) >= 0 {
			return a
		}
	}
	return nil
}
