// Package unifier is the cache that owns all data memory of an I/O server. A buffer is cache
// entry, disk buffer and network buffer at once: a read lends units of the cache to the
// network, a write is received into a private draft and published by exchange. Memory is
// bounded, hard: what is cached, lent, drafted, pending and used for direct transfers comes from
// one bound, and what a server uses elsewhere can be counted in.
//
// Promises: bytes that are lent never change; a unit is never a mixture of two writes that each
// covered it; the cache is never older than the backing; a draft that is not published leaves no
// trace; no reader can block a writer. Every block of 4 KiB has its CRC-32C, taken over from the
// backing or from the draft, so that data is summed once on its way.
//
// A write goes through to the backing, or, where that is configured and the write is volatile, is
// acknowledged when it is pending and written back a little later, in order. Requests can be
// posted, checked and waited for; streams are read ahead. Direct transfers go past the cache with
// memory from the same bound (Take) and stay coherent by Settle and Change.
//
// It knows neither sockets nor files: Backing is all that it asks of a store, and Registrar of a
// network.
//
// Lock order: claims of a range (claim.go; held over calls of the backing), Cache.mu, then the
// locks inside the gates and of stripe.Sessions. mu is never held across a call of the backing, a
// mapping, a wait or a copy of more than mergeInPlace bytes.
//
// Read unifier.go first, then slab.go and need.go (memory, and who waits for it), loan.go, lend.go
// and fill.go (life of a read), draft.go, publish.go and exchange.go (life of a write), pending.go
// and flush.go (writing back), since.go (what comes again), claim.go (who waits for whom) and
// policy.go (what stays).
package unifier

import (
	"context"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// Cache is the owner of the memory. Safe for concurrent use.
type Cache struct {
	cfg      Config
	backing  Backing
	admitter stripe.Admitter // nil: the backing is none
	keeper   keeper          // nil: the same
	stater   stripe.Stater   // the same
	limit    *mem.Limit
	now      func() time.Time

	drafts *gate.Gate // bytes of drafts
	takes  *gate.Gate // bytes of rooms
	dirty  *gate.Gate // bytes of pending writes; nil: all go through

	readMax    int64 // bytes that loans may hold
	chunkBytes int64 // of raw memory that is mapped at once
	aheadMax   int64 // the largest window; 0: no readahead
	aheadShare int64 // bytes that guesses may hold

	losses atomic.Uint64
	fills  atomic.Uint64

	life context.Context // ends with the cache
	kill context.CancelFunc
	crew sync.WaitGroup // workers and flushers

	mu     sync.Mutex
	closed bool
	out    int // loans and drafts that exist

	memory   memory
	mapped   int64 // bytes, what is about to be mapped included
	reserved int64 // bytes used elsewhere
	mapping  bool  // somebody maps a chunk
	stuck    bool  // the host had no more
	feeding  bool  // see feedLocked

	queue       line // for memory
	queueSince  time.Time
	gate        line // loans that wait for others to end
	pinnedSlabs int  // in which units are held

	objects    map[Key]*object
	table      []*unit
	tableShift uint8
	policy     policy
	stats      Stats

	wake     *sync.Cond // of idle workers
	calls    jobs       // that have their memory
	jobs     jobs       // that wait for it
	guesses  jobs
	workers  int
	idle     int
	hungry   int
	guessing int

	aheadNow              int64 // the largest window at the moment
	trialGood, trialWaste uint64
	guessNeed             need

	pending, lastPending *Draft
	order                uint64
	dirtyBytes           int64
	promised             int64                         // space of the store that they may need
	slots                map[stripe.SessionSlot]*Draft // the last pending write of each
	sessions             *stripe.Sessions              // requests that were pending, or are
	through              map[Key]bool                  // objects that are not written back to
	since                since                         // what was changed, see since.go
	flushing             bool                          // the flushers run
	kick                 chan struct{}
	flushed              line // those who wait until some write has reached the backing

	// To use again.
	spareLoans   *Loan
	spareDrafts  *Draft
	spareUnits   *unit
	spareObjects *object
	spareFills   *fill
	spareLifts   *lift
	spareRooms   *Room
	spareRuns    *run
	spareClaims  *claim          // of changes
	spareNeeds   list.List[need] // of those who attend
}

// New makes an empty cache on top of the backing.
//
// The shares of the memory add up: drafts have DraftShare, direct transfers an eighth, pending
// writes DirtyBytes, a sixteenth is left for units that are being merged, and loans have the rest.
// So what somebody is entitled to is free, or cached and not held, or will be in a moment.
func New(cfg Config, backing Backing) (*Cache, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	limit, err := mem.NewLimit(cfg.MemoryBytes)
	if err != nil {
		return nil, err
	}
	c := &Cache{
		cfg: cfg, backing: backing, limit: limit, now: time.Now,
		drafts:  gate.New(gate.Options{Bytes: cfg.draftBytes()}),
		takes:   gate.New(gate.Options{Bytes: cfg.takeBytes()}),
		readMax: cfg.readBytes(), chunkBytes: cfg.chunkBytes(),
		aheadMax: max(cfg.ReadaheadBytes, 0), aheadShare: cfg.MemoryBytes / 8,
		objects: map[Key]*object{}, slots: map[stripe.SessionSlot]*Draft{},
		sessions: &stripe.Sessions{}, through: map[Key]bool{},
	}
	c.admitter, _ = backing.(stripe.Admitter)
	c.keeper, _ = backing.(keeper)
	c.stater, _ = backing.(stripe.Stater)
	if cfg.DirtyBytes > 0 {
		c.dirty = gate.New(gate.Options{Bytes: cfg.DirtyBytes})
	}
	c.aheadNow = c.aheadMax
	c.wake = sync.NewCond(&c.mu)
	c.policy.init(cfg.MemoryBytes)
	slots := uint64(cfg.MemoryBytes >> slabShift * 4)
	c.tableShift = uint8(64 - bits.Len64(slots))
	c.table = make([]*unit, 1<<(64-c.tableShift))
	if cfg.ReadyBytes > 0 {
		c.chargeLocked(cfg.ReadyBytes)
		k, err := c.mapChunk(cfg.ReadyBytes, true)
		if err != nil {
			return nil, err
		}
		c.memory.add(k)
	}
	c.life, c.kill = context.WithCancel(context.Background())
	return c, nil
}

// Arenas are all of the memory that is mapped now. They belong to the cache.
func (c *Cache) Arenas() []*mem.Arena {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*mem.Arena
	for _, k := range c.memory.chunks {
		list = append(list, k.arena)
	}
	return list
}

// UnitBytes is the unit of objects without a hint.
func (c *Cache) UnitBytes() int { return c.cfg.UnitBytes }

// ReadShare is how many bytes of units loans may hold at once. A unit that is held keeps others
// from using its slab of 64 KiB, so what counts is slabs.
func (c *Cache) ReadShare() int64 { return c.readMax }

// ChunkMax is the longest contiguous access that Read and Draft can serve, whatever its alignment
// and unit. Longer requests are chopped by the caller.
func (c *Cache) ChunkMax() int64 { return c.cfg.Shares().Chunk }

// Shares tells how the memory is divided.
func (c *Cache) Shares() Shares { return c.cfg.Shares() }

// Query tells how many bytes of the access are cached.
func (c *Cache) Query(id Key, a seg.Access) (cached int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[id]
	if o == nil || o.count == 0 {
		return 0
	}
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return cached
		}
		cached += c.queryLocked(o, p)
	}
}

// queryLocked walks whichever is shorter, the piece or the object's units.
func (c *Cache) queryLocked(o *object, p seg.Piece) (cached int64) {
	first, last := p.Off>>o.shift, (p.End()-1)>>o.shift
	add := func(u *unit) {
		if u != nil && u.fill == nil && u.index >= first && u.index <= last {
			cached += min(p.End(), (u.index+1)<<o.shift) - max(p.Off, u.index<<o.shift)
		}
	}
	if last-first >= int64(o.count) {
		for u := o.units; u != nil; u = u.older {
			add(u)
		}
		return cached
	}
	for index := first; index <= last; index++ {
		add(c.findLocked(o, index))
	}
	return cached
}

// Close writes back what is pending, ends all work and gives the memory back. While loans, drafts
// or rooms are out it fails with errs.Busy and can be called again later; requests are refused from
// the first call on.
func (c *Cache) Close() error {
	c.mu.Lock()
	err := c.flushAllLocked(context.Background())
	c.closed = true
	for _, q := range []*line{&c.queue, &c.gate} {
		for n := q.First(); n != nil; n = q.First() {
			q.remove(n)
			n.failed = errs.New(errs.Closed, "unifier", "", nil)
			n.wake()
		}
	}
	c.wake.Broadcast()
	c.mu.Unlock()
	c.kill()
	c.crew.Wait()
	c.mu.Lock()
	if err == nil { // what was published while the first part was under way
		err = c.flushAllLocked(context.Background())
	}
	for _, o := range c.objects {
		o.busy++
		c.dropSpansLocked(o, []span{{0, math.MaxInt64}})
		o.busy--
		c.tidyLocked(o)
	}
	used, chunks := c.memory.inUse, c.memory.chunks
	if used == 0 {
		c.memory.chunks = nil
	}
	c.mu.Unlock()
	if used > 0 {
		return errs.Newf(errs.Busy, "unifier.Close", "", "%d bytes are lent or drafted", used)
	}
	for _, k := range chunks {
		if e := c.unmap(k); err == nil {
			err = e
		}
	}
	return err
}
