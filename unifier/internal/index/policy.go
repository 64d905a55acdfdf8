package index

import (
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// policy decides what is evicted: a segmented LRU that a scan cannot sweep. Units start on
// probation; one whose bytes are read a second time is protected. The least recently used
// unit on probation goes first, then protected ones, then those that are to be kept. There is a
// bound on what is protected; the longest unused above it falls back to probation and must prove
// itself again.
//
// A stream in small steps touches each unit many times, but each byte once: the second read of a
// byte counts, not the second request to a unit. So every unit remembers how far it was read.
//
// The bound follows the work. The ghost list remembers keys of evicted units, and from which side
// they came: a miss that meets the ghost of a unit on probation would have been a hit had
// probation been larger, so protection shrinks by the unit's size; the ghost of one that was
// protected lets it grow.
//
// Only units that nobody holds are in the lists, so that finding a victim never searches. Sizes are
// bytes. Guarded by the index's lock.
type policy struct {
	lists [places]list.List[Unit] // the first is the most recently used one
	bytes [places]int64           // of indexed units, held ones included

	protectedMax, protectedLeast, protectedMost int64
	keepMax                                     int64

	ghosts     []uint64 // hash of a key, the lowest bit: was protected; by hash
	ghostHits  uint64
	aheadGood  uint64
	aheadWaste uint64
	aheadBytes int64 // read ahead, and not asked for yet
}

// The places of a unit.
const (
	probation = iota
	protected
	kept

	places
)

// ghostsPerSlab: a ghost for every unit of the middle class that the memory could hold.
const ghostsPerSlab = 4

func (p *policy) init(bytes int64) {
	p.protectedMax = bytes / 4 * 3
	p.protectedLeast, p.protectedMost = bytes/8, bytes/8*7
	p.keepMax = bytes / 2
	n := 64
	for int64(n) < bytes/memory.SlabBytes*ghostsPerSlab {
		n *= 2
	}
	p.ghosts = make([]uint64, n)
}

// add makes a unit known that was just indexed, and is held.
func (p *policy) add(u *Unit) {
	if u.policy == Keep {
		u.place = kept
	}
	p.bytes[u.place] += int64(u.block.Size())
	p.demote(kept, p.keepMax)
}

// remove forgets a unit that is in no list.
func (p *policy) remove(u *Unit) {
	p.bytes[u.place] -= int64(u.block.Size())
	if u.ahead {
		u.ahead = false
		p.aheadBytes -= int64(u.block.Size())
		p.aheadWaste++
	}
}

// move gives a held unit another place.
func (p *policy) move(u *Unit, place uint8) {
	p.bytes[u.place] -= int64(u.block.Size())
	u.place = place
	p.bytes[place] += int64(u.block.Size())
}

// touch notes a read of [lo, hi) of the unit under a policy. The unit is held.
func (p *policy) touch(u *Unit, lo, hi int64, as Policy) {
	u.policy = as
	if u.ahead {
		u.ahead = false
		p.aheadBytes -= int64(u.block.Size())
		p.aheadGood++
	}
	switch {
	case as == Keep && u.place != kept:
		p.move(u, kept)
		p.demote(kept, p.keepMax)
	case as == Scan && u.place == probation && lo < u.seen:
		p.move(u, protected)
		u.was = true
		p.demote(protected, p.protectedMax)
	}
	u.seen = max(u.seen, hi)
}

// demote puts the longest unused units of a place back on probation while there are too many.
func (p *policy) demote(place uint8, most int64) {
	for p.bytes[place] > most {
		u := p.lists[place].Last()
		if u == nil {
			return // all of them are lent
		}
		p.lists[place].Remove(&u.rank)
		p.move(u, probation)
		u.seen = 0
		p.lists[probation].PushFirst(&u.rank, u)
	}
}

// inherit lets a new version be as wanted as the one that it replaces.
func (p *policy) inherit(u, old *Unit) {
	u.seen, u.was = old.seen, old.was
	if old.place != u.place {
		p.move(u, old.place)
	}
}

// enter puts a unit that nobody holds where it can be evicted. What a stream has read goes first.
func (p *policy) enter(u *Unit) {
	l := &p.lists[u.place]
	if u.policy == Stream && u.seen >= int64(u.block.Size()) {
		l.PushLast(&u.rank, u)
		return
	}
	l.PushFirst(&u.rank, u)
}

func (p *policy) leave(u *Unit) { p.lists[u.place].Remove(&u.rank) }

// victim is the unit that goes first, nil when all are held. What is only read ahead takes
// nothing from those that have proved to be useful.
func (p *policy) victim(ahead bool) *Unit {
	for place := range p.lists {
		if u := p.lists[place].Last(); u != nil {
			return u
		}
		if ahead {
			return nil
		}
	}
	return nil
}

// addGhost remembers a unit that is evicted.
func (p *policy) addGhost(u *Unit) {
	h := ghostOf(u.obj, u.index)
	if u.was {
		h |= 1
	}
	p.ghosts[h>>1%uint64(len(p.ghosts))] = h
}

// hitGhost looks whether a unit that is missing was evicted a short while ago, and if so moves the
// bound.
func (p *policy) hitGhost(o *Object, index int64) {
	h := ghostOf(o, index)
	g := &p.ghosts[h>>1%uint64(len(p.ghosts))]
	if *g&^1 != h {
		return
	}
	p.ghostHits++
	if *g&1 != 0 {
		p.protectedMax = min(p.protectedMax+o.UnitBytes(), p.protectedMost)
	} else {
		p.protectedMax = max(p.protectedMax-o.UnitBytes(), p.protectedLeast)
		p.demote(protected, p.protectedMax)
	}
	*g = 0
}

func ghostOf(o *Object, index int64) uint64 {
	h := (o.seed ^ uint64(index)*0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93
	h = (h ^ h>>29) &^ 1
	return h | 1<<63
}
