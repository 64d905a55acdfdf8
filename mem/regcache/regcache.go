// Package regcache keeps registrations of memory that callers vouch for, because registering costs
// more than most transfers: a card has to be told of every page. It is what a pin-down cache is
// elsewhere. Memory is registered when it is asked for first and stays so after its last use,
// until room is needed or the memory is invalidated.
//
// It caches registrations for local use only and never grants. Who binds remote rights on a
// Region does it for one request and revokes them before Put; or the data goes through slots.
//
// Vouching: a cache cannot see a mapping end. Memory given to Get, GetList or Hint must stay mapped
// until Invalidate has returned nil for it, or Close; where the domain says so (no AnyMemory) it
// must not be Go heap, and it must not be handed to children of a fork. Nothing beyond what was
// given is ever registered: pieces are joined into one registration only where a Hint says that
// they have one parent, or where they touch and their slices show that they are of one array.
//
// Ownership: the memory stays the caller's; a Ref or List is its taker's until Put, and so long the
// Region stays open. Blocking: Get and GetList register, which takes the time of a system call,
// and wait if somebody registers the same memory at this moment; they do not wait for room
// (errs.Again: copy instead). Invalidate waits until nobody holds the memory. All the rest
// returns at once, but Put and Close may have to deregister. Safe for concurrent use; no lock is
// held while the domain is called. A Put too many panics; under -tags invariants every second Put
// and every Ref that is held at Close does, naming the place where it was taken.
//
// Read regcache.go first, then get.go, list.go (many pieces at once) and invalidate.go.
package regcache

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/mem"
)

// Options bound a cache. The zero value is good.
type Options struct {
	// Bytes is how much memory may be registered at once, in whole pages. Default 1 GiB.
	Bytes int64

	// Count is how many registrations there may be at once. Default 4096.
	Count int

	// SpanBytes is the largest registration that is made beyond what was asked for: of a whole
	// parent, or of pieces with gaps between them. Default a quarter of Bytes.
	SpanBytes int64

	// Hints is how many parents are remembered; more push out the oldest. Default 1024.
	Hints int

	// Costs decide which gaps are registered along. Default: DefaultCosts.
	Costs Costs
}

// Costs are those of one registration, its end included: Each + pages x Page.
type Costs struct{ Each, Page time.Duration }

// DefaultCosts are those of the cards that the lineage measured: 124 µs for 4 KiB (100 of them in
// 12.4 ms) and 530 µs for 400 KiB in one. The difference is 99 pages of 4.1 µs, and 120 µs that
// every registration costs however small it is. So 29 pages in a gap are cheaper than a
// registration of its own.
func DefaultCosts() Costs {
	return Costs{Each: 120 * time.Microsecond, Page: 4100 * time.Nanosecond}
}

// gapPages is the most pages in a gap that cost less than one more registration.
func (c Costs) gapPages() uintptr { return uintptr((c.Each - 1) / c.Page) }

func (o Options) withDefaults() Options {
	if o.Bytes == 0 {
		o.Bytes = 1 << 30
	}
	if o.Count == 0 {
		o.Count = 4096
	}
	if o.SpanBytes == 0 {
		o.SpanBytes = o.Bytes / 4
	}
	if o.Hints == 0 {
		o.Hints = 1024
	}
	if o.Costs == (Costs{}) {
		o.Costs = DefaultCosts()
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Bytes < pageBytes || o.Count < 1 || o.Hints < 1:
		return errs.Newf(errs.Invalid, "regcache.New", "", "%d bytes, %d registrations, %d hints",
			o.Bytes, o.Count, o.Hints)
	case o.SpanBytes < 0 || o.SpanBytes > o.Bytes:
		return errs.Newf(errs.Invalid, "regcache.New", "", "SpanBytes %d of %d", o.SpanBytes, o.Bytes)
	case o.Costs.Each < 1 || o.Costs.Page < 1:
		return errs.Newf(errs.Invalid, "regcache.New", "", "costs %v and %v", o.Costs.Each,
			o.Costs.Page)
	}
	return nil
}

// Stats describe a cache at one moment; the first group counts from its beginning.
type Stats struct {
	Hits        uint64 // pieces that were registered already
	Misses      uint64 // registrations that were made, or tried
	Evicted     uint64 // registrations ended to make room
	Invalidated uint64 // registrations ended by Invalidate
	Covered     uint64 // registrations ended because a larger one covers them
	Retreats    uint64 // registrations of more than was asked that failed, and were done piecewise
	Refused     uint64 // times that there was no room

	Bytes     int64 // registered now, in whole pages
	HighBytes int64 // the most so far; never above Options.Bytes
	Count     int   // registrations now
	InUse     int   // those that somebody holds
	Hints     int
}

// Cache keeps registrations with one domain. Make one with New.
type Cache struct {
	domain fabric.Domain
	opts   Options

	mu      sync.Mutex
	cached  index[*entry]       // registered and good for everybody
	pending map[*entry]struct{} // being registered
	leaving map[*entry]struct{} // no longer to be found, not yet deregistered
	lru     entryList           // those of cached that nobody holds, oldest use first
	hints   index[*hint]
	hinted  uint64   // hints so far: the age of a hint
	blocked []extent // being invalidated
	ledger  ledger
	stats   Stats
	closed  bool
	failed  error // the first registration that could not be ended
	lists   *List // to use again, linked by next

	nextID uint64
	places map[uint64]*mem.Place // of Refs that are held, under -tags invariants
}

// hint is a parent: all of it is mapped, and pieces of it may be registered together.
type hint struct {
	mem []byte
	age uint64
}

// New makes an empty cache. The domain must outlive it.
func New(d fabric.Domain, opts Options) (*Cache, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	c := &Cache{
		domain: d, opts: opts,
		pending: map[*entry]struct{}{}, leaving: map[*entry]struct{}{},
	}
	c.lru.reset()
	if invariant.Enabled {
		c.places = map[uint64]*mem.Place{}
	}
	return c, nil
}

// Hint names the parent allocation of pieces to come. It registers nothing by itself: the first
// piece that is not registered brings the whole parent with it if that is within SpanBytes, or
// else what GetList finds worth while. The caller vouches for all of parent.
func (c *Cache) Hint(parent []byte) {
	if len(parent) == 0 {
		return
	}
	ext := extentOf(parent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.blockedLocked(ext) {
		return
	}
	c.hinted++
	c.hints.insert(ext, &hint{mem: parent, age: c.hinted})
	for len(c.hints.all) > c.opts.Hints {
		oldest := 0
		for i := range c.hints.all {
			if c.hints.all[i].v.age < c.hints.all[oldest].v.age {
				oldest = i
			}
		}
		c.hints.remove(c.hints.all[oldest].extent)
	}
}

// Stats tell how the cache is used.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Bytes, s.HighBytes, s.Count = c.ledger.bytes, c.ledger.high, c.ledger.count
	s.InUse = c.inUseLocked()
	s.Hints = len(c.hints.all)
	return s
}

func (c *Cache) inUseLocked() int {
	n := len(c.cached.all) - c.lru.count + len(c.pending)
	for e := range c.leaving {
		if e.refs > 0 {
			n++
		}
	}
	return n
}

// Close ends all registrations. Those that are still held end with their Put, and Close tells
// errs.Busy.
func (c *Cache) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	if invariant.Enabled {
		for _, place := range c.places {
			c.mu.Unlock()
			invariant.Check(false, "regcache.Ref, taken at %s: not put when the cache was closed",
				place.String())
		}
	}
	var idle []*entry
	for len(c.cached.all) > 0 {
		idle = c.dropLocked(c.cached.all[len(c.cached.all)-1].v, idle)
	}
	for e := range c.pending {
		e.doomed = true
	}
	c.hints = index[*hint]{}
	held := c.inUseLocked()
	c.mu.Unlock()
	c.deregister(idle)
	if held > 0 {
		return errs.Newf(errs.Busy, "regcache.Close", "", "%d registrations are in use", held)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errs.Wrap("regcache.Close", "", c.failed)
}
