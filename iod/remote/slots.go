package remote

import "github.com/sluice-storage/sluice/wire"

// A store remembers for every slot of a session the last number that it has applied, and takes a
// request with that or a lower number for a repeat. A server that writes back may have applied a
// later request and lost an earlier one. So that no lost write is taken for a repeat:
//
//   - one request of a slot is under way at a time;
//   - a slot with kept writes belongs to one object, and either to its writes through the server's
//     cache, which reach the store in the order of their acknowledgement, or to its punches and
//     direct writes, which are in the store when they are acknowledged;
//   - a request that is durable when it is acknowledged uses a slot without kept writes.
//
// A slot's numbers grow as long as the session is used, whatever uses the slot.

// Slots of one session at one server. A store remembers at least stripe.SessionsMax slots, of all
// its clients: this is a sixteenth. Some are reserved for durable requests, which are not kept.
const (
	slotsMax     = 256
	slotsKeptMax = slotsMax - 64
)

// lane is what a slot with kept writes is used for.
type lane uint8

const (
	laneDurable lane = iota // durable requests: nothing is kept
	laneCached              // writes through the server's cache
	laneDirect              // punches and direct writes
)

// slot carries one numbered request at a time.
type slot struct {
	home *slots
	id   uint16
	seq  uint32
	busy bool
	lane lane
	kept int // acknowledged writes that may have to be sent again
}

// slots are those of one session at one server. Guarded by Remote.mu.
type slots struct {
	session uint64
	made    int
	held    int // that belong to objects
	free    []*slot
}

// take takes a free slot; nil when there is none for this use.
func (s *slots) take(l lane) *slot {
	if l != laneDurable && s.held >= slotsKeptMax {
		return nil
	}
	var got *slot
	switch n := len(s.free); {
	case n > 0:
		got, s.free = s.free[n-1], s.free[:n-1]
	case s.made < slotsMax:
		got = &slot{home: s, id: uint16(s.made)}
		s.made++
	default:
		return nil
	}
	if l != laneDurable {
		s.held++
	}
	got.lane = l
	return got
}

// put frees a slot without kept writes.
func (s *slots) put(x *slot) {
	if x.lane != laneDurable {
		s.held--
	}
	s.free = append(s.free, x)
}

// number gives a request the slot's next number.
func (s *slot) number(st *wire.Stamp) {
	s.busy = true
	s.seq++
	st.Slot, st.Seq = s.id, s.seq
}

// slotFor finds a slot for a write of the object that will be kept.
func (o *object) slotFor(table *slots, l lane) *slot {
	for _, s := range o.slots {
		if !s.busy && s.lane == l && s.home == table {
			return s
		}
	}
	s := table.take(l)
	if s != nil {
		o.slots = append(o.slots, s)
	}
	return s
}

// release frees a slot of the object if it has no kept writes any more.
func (o *object) release(s *slot) {
	if s.busy || s.kept > 0 {
		return
	}
	for i := range o.slots {
		if o.slots[i] == s {
			last := len(o.slots) - 1
			o.slots[i] = o.slots[last]
			o.slots[last] = nil
			o.slots = o.slots[:last]
			break
		}
	}
	s.home.put(s)
}
