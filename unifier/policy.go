package unifier

// Policy is how units of an object are kept.
type Policy uint8

// The policies.
const (
	Scan   Policy = iota // what is used again stays, a scan cannot sweep it
	LRU                  // the longest unused goes first
	Stream               // read once, in order: read ahead, dropped behind the reader
	Keep                 // evicted last
	None                 // not kept
)

// Hint tells what a caller knows about an object.
type Hint struct {
	Policy Policy

	// Unit is the cache unit in bytes, a power of two from 4 KiB to 64 KiB. 0: as the object has
	// it, else Config.UnitBytes.
	Unit int
}

// policy decides what is evicted: a segmented LRU that a scan cannot sweep. Units start on
// probation; one whose bytes are read a second time is protected. The least recently used
// unit on probation goes first. Protected units are at most protectedMax; more of them fall
// back to probation and must prove themselves again.
//
// A stream in small steps touches each unit many times, but each byte once: the second read of a
// byte counts, not the second request to a unit. So every unit remembers how far it was read.
//
// Only units that are not lent are in the lists, so that finding a victim never searches.
// Guarded by Cache.mu.
type policy struct {
	protectedMax int
	protected    int // units that are protected, lent ones included

	lists [2]unitList // 0: on probation, 1: protected
}

func (p *policy) listOf(u *unit) *unitList {
	if u.protected {
		return &p.lists[1]
	}
	return &p.lists[0]
}

// touch notes a read of [lo, hi) of the unit. It is called while the unit is pinned.
func (p *policy) touch(u *unit, lo, hi int64) {
	if lo < u.seen && !u.protected {
		u.protected = true
		p.protected++
		p.demote()
	}
	u.seen = max(u.seen, hi)
}

// demote puts the longest unused protected unit back on probation while there are too many.
func (p *policy) demote() {
	for p.protected > p.protectedMax {
		u := p.lists[1].last
		if u == nil {
			return // all of them are lent
		}
		p.lists[1].remove(u)
		p.forget(u)
		u.seen = 0
		p.lists[0].push(u)
	}
}

func (p *policy) enter(u *unit) { p.listOf(u).push(u) }
func (p *policy) leave(u *unit) { p.listOf(u).remove(u) }

// forget ends the protection of a unit that is in no list.
func (p *policy) forget(u *unit) {
	if u.protected {
		u.protected = false
		p.protected--
	}
}

// victim is the unit that goes first, nil when all are lent.
func (p *policy) victim() *unit {
	if u := p.lists[0].last; u != nil {
		return u
	}
	return p.lists[1].last
}

// unitList is a list whose head is the most recently used unit.
type unitList struct{ first, last *unit }

func (l *unitList) push(u *unit) {
	u.next = l.first
	if l.first == nil {
		l.last = u
	} else {
		l.first.prev = u
	}
	l.first = u
}

func (l *unitList) remove(u *unit) {
	if u.prev == nil {
		l.first = u.next
	} else {
		u.prev.next = u.next
	}
	if u.next == nil {
		l.last = u.prev
	} else {
		u.next.prev = u.prev
	}
	u.prev, u.next = nil, nil
}
