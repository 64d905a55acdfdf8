package engine

import (
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/kv"
)

// Replay remembers the latest request ids and what their commits gave in a ring, so that memory
// (and the records that an engine keeps per slot) stay bounded: about 56 bytes a slot, and only for
// those used.
type Replay struct {
	size  int
	next  int // the slot that the next id takes
	ring  []request
	index map[kv.ReqID]int // id to slot
}

type request struct {
	id  kv.ReqID
	was kv.Result
}

// NewReplay makes a ring of size slots, at least kv.ReplayWindow for a real store.
func NewReplay(size int) *Replay {
	invariant.Check(size > 0, "replay ring of %d slots", size)
	return &Replay{size: size, index: make(map[kv.ReqID]int)}
}

// Find returns what the commit of id gave. The zero id is never found.
func (r *Replay) Find(id kv.ReqID) (kv.Result, bool) {
	slot, ok := r.index[id]
	if !ok {
		return kv.Result{}, false
	}
	return r.ring[slot].was, true
}

// Slot is where the next Record goes; an engine that keeps the ring on disk writes it there.
func (r *Replay) Slot() int { return r.next }

// Record notes what the commit of id gave, in place of the oldest one if the ring is
// full. The zero id is not recorded.
func (r *Replay) Record(id kv.ReqID, was kv.Result) {
	if id == (kv.ReqID{}) {
		return
	}
	if r.next == len(r.ring) {
		r.ring = append(r.ring, request{})
	} else {
		delete(r.index, r.ring[r.next].id)
	}
	r.ring[r.next] = request{id, was}
	r.index[id] = r.next
	r.next = (r.next + 1) % r.size
}

// Load refills the ring after a restart; call it for the slots 0, 1, 2 ... in order, then Loaded.
func (r *Replay) Load(id kv.ReqID, was kv.Result) {
	invariant.Check(len(r.ring) < r.size, "more than %d replay slots", r.size)
	r.index[id] = len(r.ring)
	r.ring = append(r.ring, request{id, was})
}

// Loaded ends loading and returns the latest version in the ring; the ring goes on behind it.
func (r *Replay) Loaded() kv.Version {
	var last kv.Version
	for slot := range r.ring {
		if v := r.ring[slot].was.Version; v > last {
			last, r.next = v, (slot+1)%r.size
		}
	}
	return last
}

// Until returns a copy that has forgotten everything after version v, as a crash would.
func (r *Replay) Until(v kv.Version) *Replay {
	c := NewReplay(r.size)
	for i := range r.ring {
		// From the oldest to the latest: the slot to be taken next is the oldest of a full ring.
		q := &r.ring[(r.next+i)%len(r.ring)]
		if q.was.Version <= v {
			c.Record(q.id, q.was)
		}
	}
	return c
}
