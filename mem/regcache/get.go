package regcache

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/mem"
)

// Ref is one use of a registration. It is a value to be kept by its taker, and put once. The zero
// Ref, of memory without bytes, needs no Put.
type Ref struct {
	cache *Cache
	entry *entry
	mem   []byte
	id    uint64 // under -tags invariants
}

// Region is the registration; it covers the memory asked for, and perhaps more around it. nil for
// the zero Ref.
func (r Ref) Region() fabric.Region {
	if r.entry == nil {
		return nil
	}
	return r.entry.region
}

// Sge is the memory asked for as a piece for a work request.
func (r Ref) Sge() fabric.Sge { return fabric.Sge{Reg: r.Region(), Buf: r.mem} }

// Put ends the use. Operations on the memory must be completed, and grants on it revoked. The
// registration stays for the next one, as long as there is room.
func (r Ref) Put() {
	if r.entry == nil {
		return
	}
	c := r.cache
	c.mu.Lock()
	gone := c.putLocked(r)
	c.mu.Unlock()
	if gone {
		c.deregister([]*entry{r.entry})
	}
}

// putLocked tells whether that was the last use of a registration that has left the cache.
func (c *Cache) putLocked(r Ref) bool {
	e := r.entry
	if e.refs <= 0 || invariant.Enabled && c.places[r.id] == nil {
		c.mu.Unlock() // who recovers from the panic finds the cache unlocked
		invariant.Check(false, "regcache.Ref put once more than taken")
	}
	if invariant.Enabled {
		delete(c.places, r.id)
	}
	if e.refs--; e.refs > 0 {
		return false
	}
	if e.found {
		c.lru.pushBack(e)
	}
	return !e.found
}

// holdLocked makes one more use of a cached entry.
func (c *Cache) holdLocked(e *entry, memory []byte) Ref {
	if e.refs == 0 && e.found {
		c.lru.remove(e)
	}
	e.refs++
	r := Ref{cache: c, entry: e, mem: memory}
	if invariant.Enabled {
		c.nextID++
		r.id = c.nextID
		c.places[r.id] = &mem.Place{}
		c.places[r.id].Mark()
	}
	return r
}

// Registered tells whether memory is registered at this moment. It changes nothing, and the answer
// may be old when it arrives: use TryGet to hold on to a registration.
func (c *Cache) Registered(memory []byte) bool {
	ext := extentOf(memory)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.cached.find(ext)
	return ok || len(memory) == 0
}

// TryGet is Get for memory that happens to be registered. It never registers: where it says false
// a small piece is copied instead.
func (c *Cache) TryGet(memory []byte) (Ref, bool) {
	if len(memory) == 0 {
		return Ref{}, true
	}
	ext := extentOf(memory)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.cached.find(ext); ok {
		c.stats.Hits++
		return c.holdLocked(e, memory), true
	}
	return Ref{}, false
}

// Get returns a registration that covers memory, making it if there is none. errs.Again: there is
// no room beside the registrations that are in use. errs.NoMemory: it is larger than the bound, or
// the host refuses. errs.Busy: it is being invalidated.
func (c *Cache) Get(ctx context.Context, memory []byte) (Ref, error) {
	if len(memory) == 0 {
		return Ref{}, nil
	}
	ext, trimmed := extentOf(memory), false
	for {
		c.mu.Lock()
		if e, ok := c.cached.find(ext); ok {
			c.stats.Hits++
			r := c.holdLocked(e, memory)
			c.mu.Unlock()
			return r, nil
		}
		if e := c.pendingLocked(ext); e != nil {
			c.mu.Unlock()
			select {
			case <-e.done:
				continue
			case <-ctx.Done():
				return Ref{}, errs.New(errs.KindOf(ctx.Err()), "regcache.Get", "", ctx.Err())
			}
		}
		e, victims, err := c.startLocked(memory, ext)
		c.mu.Unlock()
		if err != nil {
			return Ref{}, err
		}
		r, err := c.register(e, memory, victims)
		switch {
		case err == nil:
			return r, nil
		case e.wide: // once more, for what was asked
		case !trimmed && errs.KindOf(err) == errs.NoMemory && c.Trim() > 0:
			trimmed = true // the host allows less than the bound: once more, with what that freed
		default:
			return Ref{}, err
		}
	}
}

// pendingLocked is a registration under way that will cover ext.
func (c *Cache) pendingLocked(ext extent) *entry {
	for e := range c.pending {
		if e.covers(ext) && !e.doomed {
			return e
		}
	}
	return nil
}

func (c *Cache) blockedLocked(ext extent) bool {
	for _, b := range c.blocked {
		if b.overlaps(ext) {
			return true
		}
	}
	return false
}

// startLocked makes room for a registration of memory, or of its parent if that is known, is not
// too large and has room, too.
func (c *Cache) startLocked(memory []byte, ext extent) (*entry, []*entry, error) {
	switch {
	case c.closed:
		return nil, nil, errs.New(errs.Closed, "regcache.Get", "", nil)
	case c.blockedLocked(ext):
		return nil, nil, errs.Newf(errs.Busy, "regcache.Get", "", "the memory is being invalidated")
	}
	e := &entry{extent: ext, mem: memory, done: make(chan struct{})}
	if parent, ok := c.hints.find(ext); ok {
		wide := entry{extent: extentOf(parent.mem), mem: parent.mem, done: e.done, wide: true}
		if n := wide.bytes(); wide.extent != ext && n <= c.opts.SpanBytes && c.roomLocked(n) {
			*e = wide
		}
	}
	n := e.bytes()
	if n > c.opts.Bytes {
		return nil, nil, errs.Newf(errs.NoMemory, "regcache.Get", "", "%d bytes of at most %d",
			n, c.opts.Bytes)
	}
	if !c.roomLocked(n) {
		c.stats.Refused++
		return nil, nil, errs.Newf(errs.Again, "regcache.Get", "",
			"%d registrations of %d bytes are in use", c.ledger.count, c.ledger.bytes)
	}
	victims := c.evictLocked(n)
	c.ledger.take(e, victims)
	c.pending[e] = struct{}{}
	c.stats.Misses++
	return e, victims, nil
}

// register ends the victims, whose room the entry takes, and then registers it.
func (c *Cache) register(e *entry, memory []byte, victims []*entry) (Ref, error) {
	c.deregister(victims)
	region, err := c.domain.Register(e.mem)
	c.mu.Lock()
	delete(c.pending, e)
	c.ledger.settle(e)
	close(e.done)
	if err != nil {
		if e.wide {
			// What was hinted cannot be registered as a whole. Its pieces may be.
			c.stats.Retreats++
			c.hints.remove(e.extent)
		}
		c.endLocked(e)
		c.mu.Unlock()
		return Ref{}, errs.Wrap("regcache.Get", c.domain.Caps().Provider, err)
	}
	e.region = region
	r := c.holdLocked(e, memory)
	idle := c.publishLocked(e)
	c.mu.Unlock()
	c.deregister(idle)
	return r, nil
}

// publishLocked lets everybody find the entry. Those that it covers are of no use any more.
func (c *Cache) publishLocked(e *entry) (idle []*entry) {
	var covered []*entry
	ok := !e.doomed
	if ok {
		covered, ok = c.cached.insert(e.extent, e)
	}
	if !ok {
		c.leaving[e] = struct{}{}
		return nil
	}
	e.found = true
	for _, small := range covered {
		c.stats.Covered++
		idle = c.leaveLocked(small, idle)
	}
	return idle
}
