// Package regcache is a registration cache (pin-down cache): it registers a program's own memory
// with a provider that moves registered memory only, so that a server can access it without a copy
// by the CPU. Registering costs about as much as copying, because the device needs every page; so a
// registration is kept after its use for the next request with the same memory.
//
// Take decides for one request. If its memory is registered, that registration is used, however
// small the request is. Else the memory is registered if that costs no more than to copy the data;
// or, if it costs more, when the same memory comes a second time, because programs that reuse a
// buffer once mostly go on to do so. Other data is better copied through buffers that stay
// registered, and Take returns false. Costs are measured on the domain at the first decision.
//
// Why a registration stays valid: a device uses pages, not addresses. Memory that Go has allocated
// keeps its pages as long as something refers to it, and a Region does; so these registrations are
// cached, until they were not used for Options.IdleMax, or are evicted. Until then the garbage
// collector does not free their memory: Options.Bytes bounds it. All other memory (mapped by the
// program, a C library's) can be unmapped, and mapped anew at the same address, without notice. It
// is registered for one request, or for several at once on exactly the same memory, and not cached.
// The provider handles forks (fabric.Caps.RegistersAny).
//
// It registers for local use and does not grant. Its user grants rights on a Region for one request
// and revokes them before Use.End.
//
// Blocking: Take may register, End and Close may deregister, which takes the time of system calls.
// One registration is made at a time; a request whose memory is registered does not wait for it.
// Safe for concurrent use.
//
// Read regcache.go first, then take.go (the decision), entry.go (life of a registration), costs.go
// and object_unsafe.go (what Go has allocated).
package regcache

import (
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/list"
)

// Options bound a cache. The zero value is good.
type Options struct {
	// Bytes is how much memory may be registered at once, in whole pages. While registrations are
	// evicted there can be more, by those that are ending. Default 256 MiB.
	Bytes int64

	// Count is how many registrations there may be at once. Default 4096.
	Count int

	// IdleMax is how long an unused registration is cached. Default 10 s.
	IdleMax time.Duration

	// Costs decide what is registered. Default: measured when they are first needed.
	Costs Costs

	// Logger gets the measured costs and, once, it was logged that the host refuses a registration.
	// Default: discard.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Bytes == 0 {
		o.Bytes = 256 << 20
	}
	if o.Count == 0 {
		o.Count = 4096
	}
	if o.IdleMax == 0 {
		o.IdleMax = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	if o.Bytes < pageBytes || o.Count < 1 || o.IdleMax < 0 {
		return errs.Newf(errs.Invalid, "regcache.New", "", "%d bytes, %d registrations, %v idle",
			o.Bytes, o.Count, o.IdleMax)
	}
	return nil
}

// Stats describe a cache at one moment; the first group counts from its beginning.
type Stats struct {
	Hits    uint64 // requests whose memory was registered already
	Misses  uint64 // requests whose memory was registered for them
	Copied  uint64 // requests that were told to copy
	Evicted uint64 // registrations ended to make room
	Expired uint64 // registrations ended after IdleMax
	Refused uint64 // registrations that failed, or had no room beside those in use

	Bytes int64 // registered now, in whole pages
	Count int   // registrations now
	InUse int   // those that a request holds
}

// Add is the sum of two caches' statistics.
func (s Stats) Add(o Stats) Stats {
	return Stats{
		Hits: s.Hits + o.Hits, Misses: s.Misses + o.Misses, Copied: s.Copied + o.Copied,
		Evicted: s.Evicted + o.Evicted, Expired: s.Expired + o.Expired, Refused: s.Refused + o.Refused,
		Bytes: s.Bytes + o.Bytes, Count: s.Count + o.Count, InUse: s.InUse + o.InUse,
	}
}

// Cache keeps registrations with one domain. Make one with New.
type Cache struct {
	domain fabric.Domain
	opts   Options

	measuring sync.Once
	costs     Costs // valid after measuring

	making sync.Mutex // held while memory is registered; before mu

	mu     sync.Mutex
	cached index             // registrations that any request may use
	lent   map[extent]*entry // those of memory that cannot be cached, while requests hold them
	idle   list.List[entry]  // unused ones of cached, least recently used first
	seen   sightings
	bound  int64 // of bytes: Options.Bytes, or less where the host allows less
	stats  Stats

	usedBytes int64 // of stats.Bytes, those that requests hold

	timer  *time.Timer // ends idle registrations
	armed  bool
	told   bool // that the host refuses
	closed bool
	failed error // the first registration that could not be ended
}

// New makes an empty cache. The domain must outlive it, and its Caps must say RegistersAny.
func New(d fabric.Domain, opts Options) (*Cache, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if caps := d.Caps(); !caps.RegistersAny {
		return nil, errs.Newf(errs.Unsupported, "regcache.New", caps.Provider,
			"it registers arenas only")
	}
	c := &Cache{domain: d, opts: opts, bound: opts.Bytes, lent: map[extent]*entry{}}
	c.timer = time.AfterFunc(opts.IdleMax, c.expire)
	c.timer.Stop()
	return c, nil
}

// Stats returns the counters of the cache.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Close ends all registrations. Those that are in use end with their request, and Close returns
// errs.Busy.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.timer.Stop()
	ended := c.dropIdleLocked(func(*entry) bool { return true })
	for _, e := range c.cached.all {
		e.cached = false // its last user ends it
	}
	c.cached = index{}
	c.mu.Unlock()
	c.deregister(ended)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stats.InUse > 0 {
		return errs.Newf(errs.Busy, "regcache.Close", "", "%d registrations are in use", c.stats.InUse)
	}
	return errs.Wrap("regcache.Close", "", c.failed)
}
