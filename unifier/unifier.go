// Package unifier is the cache that owns all data memory of an I/O server. A buffer is cache
// entry, disk buffer and network buffer at once: a read lends units of the cache to the
// network, a write is received into a private draft and published by exchange. Memory is
// bounded, hard: what is cached, lent and drafted comes from one pool.
//
// Promises: bytes that are lent never change; a unit is never a mixture of two writes that each
// covered it; the cache is never older than the backing; a draft that is not published leaves no
// trace. It writes through: when Publish returns, the backing has the bytes.
//
// It knows neither sockets nor files: Backing is all that it asks of a store. It does not read
// ahead, write back or bypass itself; those come on top of what is here.
//
// Lock order: Cache.mu, then the locks inside the pool and the budgets. mu is never held
// across a backing call, a wait or a copy of more than mergeInPlace bytes.
//
// Read unifier.go first, then read.go (life of a read), draft.go and publish.go (life of a
// write), claim.go (who waits for whom) and policy.go (what stays).
package unifier

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/budget"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Key names what is cached: units of objects.
type Key = stripe.ObjectID

// Backing is what the cache needs of a store, with the meaning that package stripe gives it.
// Buffers belong to the backing only during a call.
type Backing interface {
	ReadAt(ctx context.Context, id Key, bufs [][]byte, off int64) error
	WriteAt(ctx context.Context, id Key, bufs [][]byte, off int64, st wire.Stamp,
		d stripe.Durability) error
	Sync(ctx context.Context, id Key) error
}

// Registrar registers memory with whoever moves it; a msg.Node is one. Detach comes when nobody
// uses the arena any more.
type Registrar interface {
	Attach(a *mem.Arena) error
	Detach(a *mem.Arena)
}

// Config of a cache.
type Config struct {
	// MemoryBytes bounds all data memory: cached, lent and drafted. Default 256 MiB.
	MemoryBytes int64

	// UnitBytes is the cache's unit, a power of two from 4 KiB to 2 MiB. Default 64 KiB.
	UnitBytes int

	// DraftShare is how much of the memory writes under way may hold, above 0 and below 0.8.
	// Default 0.25.
	DraftShare float64

	// ReadyBytes of the memory are registered and resident from the start. Default: derived.
	ReadyBytes int64

	// DirtyBytes bounds acknowledged data that the backing does not have yet. Default 0: none,
	// every write goes through.
	DirtyBytes int64

	// DirtyAge is how long such data may wait. Default 500 ms.
	DirtyAge time.Duration

	// ReadaheadBytes is the largest window of a stream; negative: none. Default: derived.
	ReadaheadBytes int64

	// Patience is how long a writer waits for a reader before it makes a version of its own.
	// Default 2 ms.
	Patience time.Duration

	// Registrar is told of all memory before it is used. nil: nobody.
	Registrar Registrar

	// HugePages says how much huge pages are wanted for ready memory. Default mem.Wish.
	HugePages mem.Want

	// Source is where the memory comes from. nil: anonymous memory of the process.
	Source mem.Source
}

func (c Config) withDefaults() Config {
	if c.MemoryBytes == 0 {
		c.MemoryBytes = 256 << 20
	}
	if c.UnitBytes == 0 {
		c.UnitBytes = 64 << 10
	}
	if c.DraftShare == 0 {
		c.DraftShare = 0.25
	}
	return c
}

// unitsMin is the smallest memory that makes sense: with the default shares it leaves reads and
// drafts three units each at least.
const unitsMin = 16

func (c Config) validate() error {
	switch {
	case c.UnitBytes < 4<<10 || c.UnitBytes > 2<<20 || c.UnitBytes&(c.UnitBytes-1) != 0:
		return errs.Newf(errs.Invalid, "unifier.New", "", "UnitBytes is %d", c.UnitBytes)
	case c.MemoryBytes < unitsMin*int64(c.UnitBytes):
		return errs.Newf(errs.Invalid, "unifier.New", "",
			"MemoryBytes %d is less than %d units of %d", c.MemoryBytes, unitsMin, c.UnitBytes)
	case c.DraftShare <= 0 || c.DraftShare >= 0.8:
		return errs.Newf(errs.Invalid, "unifier.New", "", "DraftShare is %v", c.DraftShare)
	}
	return nil
}

// Cache is the owner of the memory. Safe for concurrent use.
type Cache struct {
	unit    int64
	backing Backing
	arena   *mem.Arena
	reg     Registrar
	pool    *mem.Pool
	reads   *budget.Budget // units that loans may hold
	drafts  *budget.Budget // units that drafts may hold

	starving atomic.Int32 // callers that wait for a buffer, see take

	mu      sync.Mutex
	closed  bool
	objects map[Key]*object
	policy  policy
	stats   Stats
	loans   *Loan  // to use again, linked by next
	idle    *Draft // the same for drafts
	spare   *unit  // the same for units
}

// Stats describe a cache at one moment.
type Stats struct {
	Hits, Misses uint64 // units asked for that were there, or were not
	Fills        uint64 // reads of the backing
	Evictions    uint64 // units that made room
	Exchanged    uint64 // whole units published without a copy
	Merged       uint64 // units into which a part was merged
	Dropped      uint64 // units that a write or Invalidate took out
	Waits        uint64 // how often somebody waited for memory
	Bytes        int64  // cached now
	HighWater    int64  // the most memory in use so far: never above MemoryBytes
}

// New makes an empty cache on top of the backing.
//
// The shares of the memory add up: loans hold at most ReadShare, drafts at most DraftShare,
// and a sixteenth is left for units that are being merged. So a buffer that somebody is
// entitled to is free, or cached and not lent, or will be in a moment.
func New(cfg Config, backing Backing) (*Cache, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	count := int(cfg.MemoryBytes / int64(cfg.UnitBytes))
	arena, err := mem.NewArena(mem.PoolBytes(cfg.UnitBytes, count), cfg.Source)
	if err != nil {
		return nil, err
	}
	pool, err := mem.NewPool(arena, cfg.UnitBytes, count)
	if err == nil && cfg.Registrar != nil {
		err = cfg.Registrar.Attach(arena)
	}
	if err != nil {
		arena.Close()
		return nil, err
	}
	draftUnits := max(int(float64(count)*cfg.DraftShare), 1)
	slack := max(count/16, 1)
	return &Cache{
		unit: int64(cfg.UnitBytes), backing: backing, arena: arena, pool: pool, reg: cfg.Registrar,
		reads:   budget.New(int64(count - draftUnits - slack)),
		drafts:  budget.New(int64(draftUnits)),
		objects: map[Key]*object{},
		policy:  policy{protectedMax: count * 3 / 4},
	}, nil
}

// Arenas are all of the cache's memory. They are closed with the cache.
func (c *Cache) Arenas() []*mem.Arena { return []*mem.Arena{c.arena} }

// UnitBytes is the cache's unit.
func (c *Cache) UnitBytes() int { return int(c.unit) }

// ReadShare is how many bytes of units loans may hold at once. A caller that holds several
// loans for one request reserves their units against it first, in one step: then Read does
// not wait for loans of its own caller.
func (c *Cache) ReadShare() int64 { return c.reads.Total() * c.unit }

// ChunkMax is the longest range that Read, and the longest list in bytes that DraftList, can
// serve whatever its alignment. Longer requests are chopped by the caller.
func (c *Cache) ChunkMax() int64 {
	return max(min(c.reads.Total(), c.drafts.Total())-1, 1) * c.unit
}

// Query tells how many bytes of the access are cached.
func (c *Cache) Query(id Key, a seg.Access) (cached int64) {
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return cached
		}
		cached += c.query(id, p.Off, p.Len)
	}
}

func (c *Cache) query(id Key, off, length int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum int64
	c.eachLocked(c.objects[id], off, length, func(u *unit) {
		if u.fill == nil {
			lo, hi := max(off, u.index*c.unit), min(off+length, (u.index+1)*c.unit)
			sum += hi - lo
		}
	})
	return sum
}

// Invalidate drops what is cached of the range, because the backing was changed behind the
// cache: truncated, punched, removed. The backing is changed first, then Invalidate is
// called, then the change is acknowledged. A fill or a publication under way on the object
// does not enter the cache after it. Loans that are out stay as they are.
func (c *Cache) Invalidate(id Key, off, length int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[id]
	if o == nil {
		return
	}
	o.inval++
	c.eachLocked(o, off, length, c.dropLocked)
	c.tidyLocked(o)
}

// Stats tells how the cache is used.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	s := c.stats
	c.mu.Unlock()
	s.HighWater = int64(c.pool.Stats().HighWater) * c.unit
	s.Waits += c.reads.Usage().Waits + c.drafts.Usage().Waits
	return s
}

// Close gives the memory back. While loans or drafts are out it fails with errs.Busy and can be
// called again later; requests are refused from the first call on.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, o := range c.objects {
		c.eachLocked(o, 0, stripe.MaxObjectBytes, c.dropLocked)
		c.tidyLocked(o)
	}
	c.mu.Unlock()
	if n := c.pool.Stats().InUse; n > 0 {
		return errs.Newf(errs.Busy, "unifier.Close", "", "%d units are lent or drafted", n)
	}
	if c.reg != nil {
		c.reg.Detach(c.arena)
	}
	return c.arena.Close()
}

// checkRange refuses what no object can hold.
func checkRange(op string, off, length int64) error {
	if off < 0 || length < 0 || off > stripe.MaxObjectBytes || length > stripe.MaxObjectBytes-off {
		return errs.Newf(errs.Invalid, op, "", "offset %d, length %d", off, length)
	}
	return nil
}
