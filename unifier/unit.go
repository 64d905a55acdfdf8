package unifier

import "github.com/sluice-storage/sluice/mem"

// object is what the cache knows of one object. It is in Cache.objects while it has units,
// claims or somebody at work on it. All fields are guarded by Cache.mu.
type object struct {
	id     Key
	units  map[int64]*unit
	claims []*claim
	inval  uint64 // counts calls of Invalidate
	busy   int    // fills and publications that hold on to the object
}

// unit is one version of one unit of an object. A publication makes a new version and never
// changes one that is lent. Guarded by Cache.mu, except that buf is set by the fill before it
// ends.
type unit struct {
	obj       *object
	index     int64
	buf       *mem.Buf
	pins      int   // loans and fills that hold the unit
	indexed   bool  // in obj.units: the current version
	fill      *fill // while the bytes are on their way from the backing
	seen      int64 // end of what was read so far, see policy
	protected bool

	prev, next *unit // in a list of the policy while indexed and not pinned; or in Cache.spare
}

func (c *Cache) objectLocked(id Key) *object {
	o := c.objects[id]
	if o == nil {
		o = &object{id: id, units: map[int64]*unit{}}
		c.objects[id] = o
	}
	return o
}

// tidyLocked forgets an object that nothing is known of.
func (c *Cache) tidyLocked(o *object) {
	if len(o.units) == 0 && len(o.claims) == 0 && o.busy == 0 {
		delete(c.objects, o.id)
	}
}

// eachLocked calls fn for the units that touch the range. It walks whichever is shorter, the
// range or the object's units. fn may drop the unit.
func (c *Cache) eachLocked(o *object, off, length int64, fn func(*unit)) {
	if o == nil || length <= 0 || off < 0 {
		return
	}
	first, last := off/c.unit, (off+length-1)/c.unit
	if last-first >= int64(len(o.units)) {
		for index, u := range o.units {
			if index >= first && index <= last {
				fn(u)
			}
		}
		return
	}
	for index := first; index <= last; index++ {
		if u := o.units[index]; u != nil {
			fn(u)
		}
	}
}

// addLocked enters a unit, which must not be there yet, with the given number of pins.
func (c *Cache) addLocked(o *object, index int64, buf *mem.Buf, pins int) *unit {
	u := c.spare
	if u == nil {
		u = &unit{}
	} else {
		c.spare = u.next
	}
	*u = unit{obj: o, index: index, buf: buf, pins: pins, indexed: true}
	o.units[index] = u
	c.stats.Bytes += c.unit
	if pins == 0 {
		c.settleLocked(u)
	}
	return u
}

// settleLocked puts an indexed unit that nobody holds where it can be evicted.
func (c *Cache) settleLocked(u *unit) {
	c.policy.enter(u)
	if c.starving.Load() > 0 {
		c.evictLocked()
	}
}

func (c *Cache) pinLocked(u *unit) {
	if u.pins == 0 {
		c.policy.leave(u)
	}
	u.pins++
}

func (c *Cache) unpinLocked(u *unit) {
	u.pins--
	switch {
	case u.pins > 0:
	case u.indexed:
		c.settleLocked(u)
	default:
		c.freeLocked(u)
	}
}

// removeLocked takes a unit out of the index. Whoever holds it keeps it.
func (c *Cache) removeLocked(u *unit) {
	if !u.indexed {
		return
	}
	if u.pins == 0 {
		c.policy.leave(u)
	}
	c.policy.forget(u)
	delete(u.obj.units, u.index)
	u.indexed = false
	c.stats.Bytes -= c.unit
	if u.pins == 0 {
		c.freeLocked(u)
	}
}

func (c *Cache) dropLocked(u *unit) {
	c.stats.Dropped++
	c.removeLocked(u)
}

// freeLocked gives the memory of a unit that nobody holds and nobody can find back to the pool.
func (c *Cache) freeLocked(u *unit) {
	if u.buf != nil {
		u.buf.Return()
	}
	*u = unit{next: c.spare}
	c.spare = u
}
