package regcache

import "github.com/sluice-storage/sluice/fabric"

// entry is one registration. Everything but the first group is guarded by Cache.mu.
//
//	pending -> cached -> leaving -> gone
//	pending -> leaving            (invalidated, or covered by another, while it was registered)
//	pending -> gone               (failed)
type entry struct {
	extent
	mem  []byte
	wide bool          // more than was asked for
	done chan struct{} // closed when it is no longer pending

	region     fabric.Region // set before done is closed
	refs       int
	doomed     bool          // becomes leaving instead of cached
	found      bool          // is cached
	gone       chan struct{} // made by one who waits for its end
	charged    bool          // counts in the ledger
	surplus    ledger        // counts in the ledger until its victims have ended
	prev, next *entry        // in the list of those that nobody holds
}

func (e *entry) bytes() int64 { return int64(e.pages()) * pageBytes }

// goneLocked is closed when nothing of the entry is left.
func (e *entry) goneLocked() <-chan struct{} {
	if e.gone == nil {
		e.gone = make(chan struct{})
	}
	return e.gone
}

// entryList is a ring with a head that is no entry of the cache.
type entryList struct {
	head  entry
	count int
	bytes int64
}

func (l *entryList) reset() { l.head.prev, l.head.next = &l.head, &l.head }

func (l *entryList) pushBack(e *entry) {
	e.prev, e.next = l.head.prev, &l.head
	e.prev.next, e.next.prev = e, e
	l.count++
	l.bytes += e.bytes()
}

func (l *entryList) remove(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
	l.count--
	l.bytes -= e.bytes()
}

// ledger is what is registered, or reserved for a registration. A registration counts until it has
// really ended, so that the domain never holds more than the bounds.
type ledger struct {
	bytes, high int64
	count       int
}

// take counts an entry in place of its victims. They have not ended yet, so that until they have
// the larger of the two counts: the difference is the entry's surplus.
func (l *ledger) take(e *entry, victims []*entry) {
	for _, v := range victims {
		l.sub(v)
		e.surplus.bytes += v.bytes()
		e.surplus.count++
	}
	e.charged = true
	e.surplus.bytes = max(e.surplus.bytes-e.bytes(), 0)
	e.surplus.count = max(e.surplus.count-1, 0)
	l.bytes += e.bytes() + e.surplus.bytes
	l.count += 1 + e.surplus.count
	l.high = max(l.high, l.bytes)
}

// settle ends the surplus.
func (l *ledger) settle(e *entry) {
	l.bytes -= e.surplus.bytes
	l.count -= e.surplus.count
	e.surplus = ledger{}
}

func (l *ledger) sub(e *entry) {
	if e.charged {
		e.charged = false
		l.bytes -= e.bytes()
		l.count--
	}
}

// roomLocked tells whether n more bytes fit when everything that nobody holds has ended.
func (c *Cache) roomLocked(n int64) bool {
	return c.ledger.bytes-c.lru.bytes+n <= c.opts.Bytes &&
		c.ledger.count-c.lru.count < c.opts.Count
}

// evictLocked takes out the registrations that were not used longest, until n more bytes fit.
// They still count, and are the caller's to deregister.
func (c *Cache) evictLocked(n int64) []*entry {
	var victims []*entry
	bytes, count := c.ledger.bytes, c.ledger.count
	for bytes+n > c.opts.Bytes || count+1 > c.opts.Count {
		v := c.lru.head.next
		bytes -= v.bytes()
		count--
		victims = c.dropLocked(v, victims)
		c.stats.Evicted++
	}
	return victims
}

// dropLocked makes a cached entry leave: nobody finds it any more. If nobody holds it either it is
// appended to idle, and the caller deregisters it; else the last Put does.
func (c *Cache) dropLocked(e *entry, idle []*entry) []*entry {
	c.cached.remove(e.extent)
	return c.leaveLocked(e, idle)
}

func (c *Cache) leaveLocked(e *entry, idle []*entry) []*entry {
	e.found = false
	c.leaving[e] = struct{}{}
	if e.refs == 0 {
		c.lru.remove(e)
		idle = append(idle, e)
	}
	return idle
}

// Trim ends all registrations that nobody holds, where memory is short, and tells how many.
func (c *Cache) Trim() int {
	var idle []*entry
	c.mu.Lock()
	for c.lru.count > 0 {
		idle = c.dropLocked(c.lru.head.next, idle)
		c.stats.Evicted++
	}
	c.mu.Unlock()
	c.deregister(idle)
	return len(idle)
}

// deregister ends registrations that have left and that nobody holds.
func (c *Cache) deregister(entries []*entry) {
	if len(entries) == 0 {
		return
	}
	var failed error
	for _, e := range entries {
		if err := e.region.Close(); failed == nil {
			failed = err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = failed
	}
	for _, e := range entries {
		delete(c.leaving, e)
		c.endLocked(e)
	}
}

// endLocked is the end of an entry, told to those who wait for it.
func (c *Cache) endLocked(e *entry) {
	c.ledger.sub(e)
	if e.gone != nil {
		close(e.gone)
	}
}
