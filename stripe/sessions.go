package stripe

import (
	"sync"

	"github.com/sluice-storage/sluice/wire"
)

// Sessions remembers for each slot of a session the last request that was applied, for engines.
// The zero value is empty. Safe for concurrent use; its lock is a leaf.
//
// Bounded by SessionsMax in two generations: when the younger one is full it becomes the older one,
// and what was in that and not used since is forgotten.
type Sessions struct {
	mu           sync.Mutex
	young, older map[SessionSlot]uint32
}

// SessionSlot names a slot of a session.
type SessionSlot struct {
	Session uint64
	Slot    uint16
}

// Numbered tells whether a stamp numbers its request.
func Numbered(st wire.Stamp) bool { return st.Session != 0 && st.Seq != 0 }

// Repeated tells whether the request, or a later one of its slot, was noted.
func (s *Sessions) Repeated(st wire.Stamp) bool {
	if !Numbered(st) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := SessionSlot{st.Session, st.Slot}
	last, ok := s.young[key]
	if !ok {
		last, ok = s.older[key]
	}
	return ok && st.Seq <= last
}

// Note remembers that the request was applied. Notes come in the order of the slot's requests.
func (s *Sessions) Note(st wire.Stamp) {
	if !Numbered(st) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := SessionSlot{st.Session, st.Slot}
	if s.young == nil || len(s.young) >= SessionsMax {
		s.young, s.older = make(map[SessionSlot]uint32), s.young
	}
	s.young[key] = max(st.Seq, s.older[key], s.young[key])
}

// Each calls fn for every slot that is remembered. fn must not use s.
func (s *Sessions) Each(fn func(key SessionSlot, seq uint32)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, seq := range s.older {
		if _, again := s.young[key]; !again {
			fn(key, seq)
		}
	}
	for key, seq := range s.young {
		fn(key, seq)
	}
}
