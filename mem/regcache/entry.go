package regcache

import (
	"runtime"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/list"
)

// entry is one registration: cached, for any request; or lent, for requests on exactly the same
// memory, while they run. It ends when it is not cached and no request holds it.
type entry struct {
	extent
	region fabric.Region
	pin    runtime.Pinner // keeps Go from moving the memory

	// Guarded by Cache.mu.
	refs   int // requests that hold it
	cached bool
	used   time.Time // when the last request ended
	idle   list.Link[entry]
}

// findLocked returns a registration that covers a piece, or one that is lent on the whole buffer
// that the piece is a part of; nil if there is none.
func (c *Cache) findLocked(piece, whole extent) *entry {
	if e := c.cached.find(piece); e != nil {
		return e
	}
	return c.lent[whole]
}

// findOrRegister is register, unless another request has registered the memory meanwhile.
func (c *Cache) findOrRegister(s *span) (*entry, error) {
	c.mu.Lock()
	e := c.findLocked(s.extent, s.extent)
	if e != nil {
		c.holdLocked(e)
	}
	c.mu.Unlock()
	if e != nil {
		return e, nil
	}
	return c.register(s)
}

// register makes a registration that the caller holds. If the host refuses, unused ones are
// evicted, and it tries once more.
func (c *Cache) register(s *span) (*entry, error) {
	for retried := false; ; retried = true {
		victims, err := c.reserve(s.bytes())
		if err != nil {
			return nil, err
		}
		c.deregister(victims)
		e := &entry{extent: s.extent, refs: 1}
		e.pin.Pin(&s.mem[0])
		e.region, err = c.domain.Register(s.mem)
		if err == nil {
			c.deregister(c.publish(e, s.heap))
			return e, nil
		}
		e.pin.Unpin()
		full := errs.KindOf(err) == errs.NoMemory
		again := full && !retried && c.Trim() > 0
		c.unreserve(s.bytes(), full && !again)
		if !again {
			return nil, errs.Wrap("regcache.Take", c.domain.Caps().Provider, err)
		}
	}
}

// reserve makes room for a registration of n bytes by evicting the least recently used ones, which
// the caller ends. It does not wait for those in use.
func (c *Cache) reserve(n int64) (victims []*entry, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, errs.New(errs.Closed, "regcache.Take", "", nil)
	case c.usedBytes+n > c.bound || c.stats.InUse >= c.opts.Count:
		return nil, errs.Newf(errs.Again, "regcache.Take", "",
			"no room for %d bytes: %d of %d are in use", n, c.usedBytes, c.bound)
	}
	victims = c.dropIdleLocked(func(*entry) bool {
		return c.stats.Bytes+n > c.bound || c.stats.Count >= c.opts.Count
	})
	c.stats.Evicted += uint64(len(victims))
	c.stats.Bytes += n
	c.stats.Count++
	c.stats.InUse++
	c.usedBytes += n
	return victims, nil
}

// unreserve releases the room of a registration that failed. If the host refuses although nothing
// is idle it allows less than the bound, which is lowered so that the same is not tried again.
func (c *Cache) unreserve(n int64, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if full {
		c.bound = min(c.bound, c.stats.Bytes-pageBytes)
	}
	c.stats.Bytes -= n
	c.stats.Count--
	c.stats.InUse--
	c.usedBytes -= n
}

// publish adds a registration to the cache. Those that it covers are removed: the caller ends the
// idle ones.
func (c *Cache) publish(e *entry, keep bool) (ended []*entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if !keep {
		c.lent[e.extent] = e
		return nil
	}
	covered, ok := c.cached.insert(e)
	e.cached = ok
	for _, small := range covered {
		small.cached = false // its last user ends it
		if small.refs == 0 {
			c.idle.Remove(&small.idle)
			ended = append(ended, c.endLocked(small))
		}
	}
	return ended
}

// holdLocked adds a use of a cached entry.
func (c *Cache) holdLocked(e *entry) {
	if e.refs == 0 {
		c.idle.Remove(&e.idle)
		c.stats.InUse++
		c.usedBytes += e.bytes()
	}
	e.refs++
}

// release ends one use of each entry.
func (c *Cache) release(held []*entry) {
	if len(held) == 0 {
		return
	}
	var ended []*entry
	now := time.Now()
	c.mu.Lock()
	for _, e := range held {
		invariant.Check(e.refs > 0, "regcache: a registration that nobody holds was released")
		if e.refs--; e.refs > 0 {
			continue
		}
		c.stats.InUse--
		c.usedBytes -= e.bytes()
		if !e.cached {
			ended = append(ended, c.endLocked(e))
			continue
		}
		e.used = now
		c.idle.PushLast(&e.idle, e)
		c.armLocked(c.opts.IdleMax)
	}
	c.mu.Unlock()
	c.deregister(ended)
}

// endLocked removes an entry from the counters. The caller ends its registration.
func (c *Cache) endLocked(e *entry) *entry {
	if c.lent[e.extent] == e {
		delete(c.lent, e.extent)
	}
	c.stats.Bytes -= e.bytes()
	c.stats.Count--
	return e
}

// dropIdleLocked evicts unused registrations, least recently used first, while more is true. The
// caller ends them.
func (c *Cache) dropIdleLocked(more func(*entry) bool) (dropped []*entry) {
	for e := c.idle.First(); e != nil && more(e); e = c.idle.First() {
		c.idle.Remove(&e.idle)
		c.cached.remove(e)
		e.cached = false
		dropped = append(dropped, c.endLocked(e))
	}
	return dropped
}

// Trim ends all unused registrations, where the limit of locked memory is needed for something
// else, and returns how many.
func (c *Cache) Trim() int {
	c.mu.Lock()
	dropped := c.dropIdleLocked(func(*entry) bool { return true })
	c.stats.Evicted += uint64(len(dropped))
	c.mu.Unlock()
	c.deregister(dropped)
	return len(dropped)
}

// expire ends registrations that were not used for long, so that the garbage collector gets their
// memory back.
func (c *Cache) expire() {
	c.mu.Lock()
	c.armed = false
	before := time.Now().Add(-c.opts.IdleMax)
	dropped := c.dropIdleLocked(func(e *entry) bool { return !e.used.After(before) })
	c.stats.Expired += uint64(len(dropped))
	if e := c.idle.First(); e != nil {
		c.armLocked(e.used.Sub(before))
	}
	c.mu.Unlock()
	c.deregister(dropped)
}

// armLocked starts the timer of expire, unless it runs.
func (c *Cache) armLocked(after time.Duration) {
	if !c.armed && !c.closed {
		c.armed = true
		c.timer.Reset(after)
	}
}

// deregister ends registrations that were removed.
func (c *Cache) deregister(entries []*entry) {
	for _, e := range entries {
		err := e.region.Close()
		e.pin.Unpin()
		if err != nil {
			c.mu.Lock()
			if c.failed == nil {
				c.failed = err
			}
			c.mu.Unlock()
		}
	}
}
