// Package memory is the lowest of the unifier's three parts: it maps the cache's memory, registers
// it with the network, knows which of it is free, hands it out in blocks, and lets those wait for
// whom there is none.
//
// A block belongs to whoever allocated it until he frees it. A private block is somebody's draft,
// transfer or fill; one with an owner (Block.SetOwner) holds a unit of the cache. Whether a unit
// can be evicted only the index above knows: it is the Evictor that the pool is made with. The
// pool calls nothing else of it, and knows neither objects nor the backing.
//
// The pool has no lock of its own. Everything here is called under the lock that New is given,
// which is the index's; a pool lets go of it only while somebody waits (Allocate, Pass,
// StandAside) or while memory is mapped (Allocate, Grow). Whoever has freed, or made evictable,
// calls Serve before he lets go of the lock: then those who wait get what there is.
//
// Nobody waits in a circle for memory: see queue.go. Read slab.go first, then queue.go and gate.go.
package memory

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/mem"
)

// Registrar registers memory with whoever moves it; a msg.Node is one. Attach comes before the
// memory is used, Detach when nobody uses it any more. Neither may call the cache.
type Registrar interface {
	Attach(a *mem.Arena) error
	Detach(a *mem.Arena)
}

// Evictor makes cached units give their memory back. Evict frees at least one block and tells so,
// or tells that there is none to free; best if it is of the class. What is only read ahead takes
// nothing from units that have proved to be useful. It is called under the lock.
type Evictor interface {
	Evict(shift uint8, ahead bool) bool
}

// Config of a pool. Bytes is the bound on all that is mapped; ReadyBytes of it are mapped,
// resident and registered from the start, the rest in steps of ChunkBytes when it is needed.
// LoanBytes is how much units that are held may keep from others, see Hold.
type Config struct {
	Bytes, ReadyBytes, ChunkBytes, LoanBytes int64

	Registrar Registrar // nil: nobody needs to know
	HugePages mem.Want  // for what is ready
	Source    mem.Source
}

// Pool is all data memory of a cache.
type Pool struct {
	cfg   Config
	limit *mem.Limit
	mu    sync.Locker
	evict Evictor

	blocks   freeList
	mapped   int64 // bytes, what is about to be mapped included
	high     int64 // the most that was mapped
	mapping  bool  // somebody maps a chunk
	stuck    bool  // the host had no more
	closed   bool
	failures uint64 // to map

	queue     Line // requests for memory
	headSince time.Time
	gate      Line // loans that wait for others to end
	heldSlabs int
	waits     uint64
	starved   chan struct{}
}

// New maps what is to be ready.
func New(cfg Config, mu sync.Locker, evict Evictor) (*Pool, error) {
	limit, err := mem.NewLimit(cfg.Bytes)
	if err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg, limit: limit, mu: mu, evict: evict, starved: make(chan struct{}, 2)}
	if cfg.ReadyBytes > 0 {
		p.charge(cfg.ReadyBytes)
		k, err := p.mapChunk(cfg.ReadyBytes, true)
		if err != nil {
			return nil, err
		}
		p.blocks.add(k)
	}
	return p, nil
}

// growth is how many bytes the next chunk would have; 0 when there is no room for one.
func (p *Pool) growth() int64 {
	left := p.cfg.Bytes - p.mapped
	if p.stuck || left < SlabBytes || p.closed {
		return 0
	}
	return min(left, p.cfg.ChunkBytes) &^ (SlabBytes - 1)
}

// Grow maps a chunk if no slab is free and there is room for one. It lets go of the lock while it
// maps.
func (p *Pool) Grow() {
	if p.blocks.free == 0 && !p.mapping && p.growth() > 0 {
		p.grow()
	}
}

func (p *Pool) grow() {
	size := p.growth()
	p.mapping = true
	p.charge(size)
	p.mu.Unlock()
	k, err := p.mapChunk(size, false)
	p.mu.Lock()
	p.mapping = false
	if err != nil {
		// The host has no more: the cache lives with what it has.
		p.mapped -= size
		p.stuck = true
		p.failures++
	} else {
		p.blocks.add(k)
	}
	p.Serve()
}

// charge counts memory before it is mapped.
func (p *Pool) charge(size int64) {
	p.mapped += size
	p.high = max(p.high, p.mapped)
	invariant.Check(p.mapped <= p.cfg.Bytes, "unifier: memory above its bound")
}

// mapChunk makes a chunk and tells the registrar of it. It needs no lock.
func (p *Pool) mapChunk(size int64, ready bool) (*chunk, error) {
	opts := mem.ArenaOptions{Bytes: int(size), Source: p.cfg.Source, Limit: p.limit,
		Huge: p.cfg.HugePages}
	if !ready {
		opts.Populate, opts.Lock, opts.Huge = mem.No, mem.No, mem.No
	}
	if size%(2<<20) != 0 {
		opts.Huge = mem.No // rounding up to huge pages would break the bound
	}
	a, err := mem.OpenArena(opts)
	if err != nil {
		return nil, err
	}
	if p.cfg.Registrar != nil {
		if err := p.cfg.Registrar.Attach(a); err != nil {
			_ = a.Close()
			return nil, err
		}
	}
	return newChunk(a, size, ready), nil
}

// Stop refuses all who wait and all who would have to.
func (p *Pool) Stop() {
	p.closed = true
	p.queue.ReleaseAll(errs.New(errs.Closed, "unifier", "", nil))
	p.gate.ReleaseAll(errs.New(errs.Closed, "unifier", "", nil))
}

// Close gives all memory back. It fails with errs.Busy while some of it is allocated. It is called
// without the lock, after Stop.
func (p *Pool) Close() error {
	p.mu.Lock()
	used, chunks := p.blocks.inUse, p.blocks.chunks
	if used == 0 {
		p.blocks = freeList{}
	}
	p.mu.Unlock()
	if used > 0 {
		return errs.Newf(errs.Busy, "unifier.Close", "", "%d bytes are lent or drafted", used)
	}
	var err error
	for _, k := range chunks {
		if p.cfg.Registrar != nil {
			p.cfg.Registrar.Detach(k.arena)
		}
		if e := k.arena.Close(); err == nil {
			err = e
		}
	}
	return err
}

// Stats describe a pool at one moment.
type Stats struct {
	Ready, Mapped, HighWater int64  // bytes
	InUse                    int64  // bytes of blocks that are allocated
	HeldSlabs                int    // slabs in which units are held
	Waits                    uint64 // how often somebody waited
	MapFailures              uint64 // how often the host had no memory
}

// Stats tells how the memory is used.
func (p *Pool) Stats() Stats {
	s := Stats{Mapped: p.mapped, HighWater: p.high, InUse: p.blocks.inUse, HeldSlabs: p.heldSlabs,
		Waits: p.waits, MapFailures: p.failures}
	for _, k := range p.blocks.chunks {
		if k.ready {
			s.Ready += int64(len(k.slabs)) << SlabShift
		}
	}
	return s
}
