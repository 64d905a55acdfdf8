package unifier

import (
	"math/bits"

	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/list"
)

// object is what the cache knows of one object. It is in Cache.objects while it has units,
// claims or somebody at work on it. All fields are guarded by Cache.mu.
type object struct {
	id     Key
	seed   uint64 // of its units' places in Cache.table
	shift  uint8  // of its unit
	units  *unit  // linked by older and younger
	count  int
	claims []*claim
	inval  uint64 // counts losses: see Cache.loseLocked
	busy   int    // fills, drafts and changes that hold on to the object
	ahead  streams

	first, last *Draft          // pending writes in order
	dirty       map[int64]int32 // how many of them touch a unit
	flushing    bool            // somebody writes the first ones back

	next *object // in Cache.spareObjects
}

func (o *object) unit() int64 { return 1 << o.shift }

// unit is one version of one unit of an object. A publication makes a new version and never
// changes one that is lent. Guarded by Cache.mu, except for the bytes of the block.
type unit struct {
	obj     *object
	index   int64
	blk     block
	pins    int32 // loans, fills and pending writes that hold the unit
	indexed bool  // in Cache.table: the current version
	fill    *fill // while the bytes are on their way from the backing
	watch   *need // of a writer that waits for the readers to let go

	policy Policy
	place  uint8 // which list it belongs to, see policy
	was    bool  // protected once
	ahead  bool  // read ahead, and nobody has asked for it yet
	seen   int64 // end of what was read so far, see policy

	rank           list.Link[unit] // in a list of the policy while indexed and not pinned
	chain          *unit           // in a bucket of Cache.table, or in Cache.spareUnits
	older, younger *unit           // of the object
}

func (u *unit) bytes() []byte { return u.blk.bytes(0, u.blk.size()) }

// objectLocked finds or makes the object. A hint may give it another unit.
func (c *Cache) objectLocked(id Key, h Hint) *object {
	o := c.objects[id]
	if o != nil {
		if h.Unit != 0 && o.unit() != int64(h.Unit) {
			c.resizeLocked(o, h.Unit)
		}
		return o
	}
	if o = c.spareObjects; o == nil {
		o = &object{}
	} else {
		c.spareObjects = o.next
	}
	size := h.Unit
	if size == 0 {
		size = c.cfg.UnitBytes
	}
	*o = object{id: id, claims: o.claims[:0], dirty: o.dirty, shift: shiftOf(size)}
	o.seed = (id.File*0x9E3779B97F4A7C15 ^ uint64(id.Gen)<<32 ^ uint64(id.Stripe)) *
		0xD6E8FEB86659FD93
	c.objects[id] = o
	return o
}

func shiftOf(size int) uint8 { return uint8(bits.TrailingZeros(uint(size))) }

// resizeLocked gives an object that nobody is at work on another unit.
func (c *Cache) resizeLocked(o *object, size int) {
	if o.busy > 0 || len(o.claims) > 0 || o.first != nil {
		return
	}
	for o.units != nil {
		c.dropLocked(o.units)
	}
	o.shift = shiftOf(size)
	o.ahead = streams{}
}

// tidyLocked forgets an object that nothing is known of.
func (c *Cache) tidyLocked(o *object) {
	if o.count > 0 || len(o.claims) > 0 || o.busy > 0 || o.first != nil {
		return
	}
	if c.objects[o.id] == o {
		delete(c.objects, o.id)
		o.next, c.spareObjects = c.spareObjects, o
	}
}

// bucketLocked is where a unit is found.
func (c *Cache) bucketLocked(o *object, index int64) **unit {
	h := (o.seed + uint64(index)) * 0x9E3779B97F4A7C15
	return &c.table[h>>c.tableShift]
}

func (c *Cache) findLocked(o *object, index int64) *unit {
	for u := *c.bucketLocked(o, index); u != nil; u = u.chain {
		if u.index == index && u.obj == o {
			return u
		}
	}
	return nil
}

// eachLocked calls fn for the units of a span. It walks whichever is shorter, the span or the
// object's units. fn may drop the unit it is given and no other.
func (c *Cache) eachLocked(o *object, s span, fn func(*unit)) {
	if s.last-s.first < int64(o.count) {
		for index := s.first; index <= s.last; index++ {
			if u := c.findLocked(o, index); u != nil {
				fn(u)
			}
		}
		return
	}
	for u := o.units; u != nil; {
		older := u.older
		if u.index >= s.first && u.index <= s.last {
			fn(u)
		}
		u = older
	}
}

// dropSpansLocked takes what is cached of the spans out, but for what is being filled.
func (c *Cache) dropSpansLocked(o *object, spans []span) {
	c.feeding = true // whoever waits for memory is fed when the walk is over
	for _, s := range spans {
		c.eachLocked(o, s, func(u *unit) {
			if u.fill == nil {
				c.dropLocked(u)
			}
		})
	}
	c.feeding = false
	c.feedLocked()
}

// addLocked enters a unit, which must not be there yet, with one pin.
func (c *Cache) addLocked(o *object, index int64, blk block, p Policy) *unit {
	invariant.Check(blk.slab.shift == o.shift, "unifier: a unit in memory of another size")
	u := c.spareUnits
	if u == nil {
		u = &unit{}
	} else {
		c.spareUnits = u.chain
	}
	*u = unit{obj: o, index: index, blk: blk, pins: 1, indexed: true, policy: p}
	bucket := c.bucketLocked(o, index)
	u.chain, *bucket = *bucket, u
	if u.older = o.units; u.older != nil {
		u.older.younger = u
	}
	o.units = u
	o.count++
	blk.slab.owners[blk.part] = u
	c.holdLocked(blk.slab)
	c.stats.Bytes += int64(blk.size())
	c.policy.add(u)
	return u
}

// holdLocked counts a held unit of the slab.
func (c *Cache) holdLocked(s *slab) {
	if s.pinned++; s.pinned == 1 {
		c.pinnedSlabs++
	}
}

func (c *Cache) unholdLocked(s *slab) {
	if s.pinned--; s.pinned == 0 {
		c.pinnedSlabs--
		c.admitLocked()
	}
}

func (c *Cache) pinLocked(u *unit) {
	if u.pins == 0 {
		c.policy.leave(u)
		c.holdLocked(u.blk.slab)
	}
	u.pins++
}

func (c *Cache) unpinLocked(u *unit) {
	if u.pins--; u.pins > 0 {
		return
	}
	s := u.blk.slab
	if u.watch != nil {
		u.watch.wake()
	}
	if !u.indexed {
		c.freeLocked(u)
	} else {
		c.policy.enter(u)
		if o := u.obj; u.policy == None {
			c.removeLocked(u)
			c.tidyLocked(o)
		}
	}
	c.unholdLocked(s)
	c.feedLocked()
}

// removeLocked takes a unit out of the index. Whoever holds it keeps it.
func (c *Cache) removeLocked(u *unit) {
	if !u.indexed {
		return
	}
	if u.pins == 0 {
		c.policy.leave(u)
	}
	c.policy.remove(u)
	c.unlinkLocked(u)
	c.stats.Bytes -= int64(u.blk.size())
	if u.pins == 0 {
		c.freeLocked(u)
	}
}

// unlinkLocked makes a unit impossible to find.
func (c *Cache) unlinkLocked(u *unit) {
	o := u.obj
	at := c.bucketLocked(o, u.index)
	for *at != u {
		at = &(*at).chain
	}
	*at = u.chain
	if u.younger == nil {
		o.units = u.older
	} else {
		u.younger.older = u.older
	}
	if u.older != nil {
		u.older.younger = u.younger
	}
	o.count--
	u.chain, u.older, u.younger, u.indexed = nil, nil, nil, false
}

func (c *Cache) dropLocked(u *unit) {
	c.stats.Dropped++
	c.removeLocked(u)
}

// freeLocked gives back the memory of a unit that nobody holds and nobody can find.
func (c *Cache) freeLocked(u *unit) {
	c.memory.give(u.blk)
	*u = unit{chain: c.spareUnits}
	c.spareUnits = u
	c.feedLocked()
}
