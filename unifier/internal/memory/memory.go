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
// Nobody waits in a circle for memory: see queue.go. Read slab.go first, then queue.go.
package memory

import (
	"sync"
	"time"

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

	Registrar Registrar  // nil: nobody needs to know
	Source    mem.Source // nil: memory of this process alone
	HugePages mem.Want   // for what is ready, where there is no source
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

// growth is how many bytes the next chunk would have; 0 when there is no room for one.
func (p *Pool) growth() int64 {
	left := p.cfg.Bytes - p.mapped
	if p.stuck || left < SlabBytes || p.closed {
		return 0
	}
	return min(left, p.cfg.ChunkBytes) &^ (SlabBytes - 1)
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
