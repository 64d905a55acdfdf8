// Package dirty is the memory of what programs have written and servers may still lose: data lies
// in it from the moment that a program hands it over, while more is gathered behind it, while it is
// sent and while it is kept, until it is on stable storage. It is sent from where it lies, so that
// it is copied once on its way from the program to the server.
//
// Memory gives out rooms: pieces of one arena, of any size, taken and given back in any order. It
// has no lock of its own. It allocates nothing after New.
package dirty

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Grain is the unit of allocation. It also bounds the memory of records that are kept beside rooms:
// each is smaller than it.
const Grain = 1 << 10

// RoomFor is how much of the memory n bytes take.
func RoomFor(n int64) int64 { return (n + Grain - 1) &^ (Grain - 1) }

// Room is a piece of the memory. The zero value is none.
type Room struct {
	Bytes []byte
	at    int32 // its first grain
}

// None tells whether there is no memory in it.
func (r Room) None() bool { return r.Bytes == nil }

// Memory is one arena in rooms.
//
// Grains lie in runs, which are free or taken. tags has an entry for each grain: the first and the
// last grain of a run have its length, negative where it is taken; what the others have does not
// matter. So both neighbours of a run are found from it. The search for a free one goes on where
// the last one was found (next fit): rooms are given back about in the order in which they were
// taken. When all are back it begins at the front, where the memory is still in the processor's
// cache.
type Memory struct {
	mem  []byte
	tags []int32
	free int32 // grains
	next int32 // the run where the search begins
}

// New divides an arena, of which what does not fill a grain is not used.
func New(arena []byte) (*Memory, error) {
	n := len(arena) / Grain
	if n == 0 || n > 1<<30 {
		return nil, errs.Newf(errs.Invalid, "dirty.New", "", "%d bytes", len(arena))
	}
	m := &Memory{mem: arena, tags: make([]int32, n), free: int32(n)}
	m.set(0, int32(n))
	return m, nil
}

// set marks a run: its length, negative if it is taken.
func (m *Memory) set(at, tag int32) {
	m.tags[at] = tag
	m.tags[at+max(tag, -tag)-1] = tag
}

// Used is how many bytes are taken, in whole grains.
func (m *Memory) Used() int64 {
	if m == nil {
		return 0
	}
	return int64(int32(len(m.tags))-m.free) * Grain
}

// Bytes is how many there are.
func (m *Memory) Bytes() int64 { return int64(len(m.tags)) * Grain }

// Take takes a room of n bytes, n > 0; none if that much is not free in one piece.
func (m *Memory) Take(n int64) Room {
	need := int32(RoomFor(n) / Grain)
	if n <= 0 || n > m.Bytes() || need > m.free {
		return Room{}
	}
	at := m.next
	for {
		if tag := m.tags[at]; tag >= need {
			m.cut(at, tag, need)
			from := int(at) * Grain
			return Room{Bytes: m.mem[from : from+int(n) : from+int(need)*Grain], at: at}
		}
		at = m.after(at)
		if at == m.next {
			return Room{}
		}
	}
}

// after is the run behind the one at a grain, around the end.
func (m *Memory) after(at int32) int32 {
	tag := m.tags[at]
	if at += max(tag, -tag); int(at) == len(m.tags) {
		return 0
	}
	return at
}

// cut takes the first grains of a free run.
func (m *Memory) cut(at, have, need int32) {
	m.set(at, -need)
	if have > need {
		m.set(at+need, have-need)
	}
	m.free -= need
	m.next = m.after(at)
}

// Trim gives back what a room has behind its first n bytes, n > 0.
func (m *Memory) Trim(r *Room, n int64) {
	have, need := -m.tags[r.at], int32(RoomFor(n)/Grain)
	r.Bytes = r.Bytes[:min(n, int64(len(r.Bytes)))]
	if need >= have {
		return
	}
	m.set(r.at, -need)
	rest := Room{Bytes: m.mem[int(r.at+need)*Grain:], at: r.at + need}
	m.set(rest.at, need-have)
	m.Give(rest)
}

// Give gives a room back. Nobody may use it any more.
func (m *Memory) Give(r Room) {
	if r.None() {
		return
	}
	at, n := r.at, -m.tags[r.at]
	invariant.Check(n > 0, "a room is given back that is free")
	m.free += n
	if end := at + n; int(end) < len(m.tags) && m.tags[end] > 0 {
		n += m.tags[end]
	}
	if at > 0 && m.tags[at-1] > 0 {
		before := m.tags[at-1]
		at, n = at-before, n+before
	}
	m.set(at, n)
	if m.next > at && m.next < at+n { // it was the run behind, or this one
		m.next = at
	}
	if int(m.free) == len(m.tags) {
		m.next = 0
	}
}
