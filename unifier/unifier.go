// Package unifier is the cache that owns all data memory of an I/O server. A buffer is cache
// entry, disk buffer and network buffer at once: a read lends units of the cache to the
// network, a write is received into a private draft and published by exchange. Memory is
// bounded, hard: what is cached, lent, drafted, pending and used for direct transfers comes from
// one bound.
//
// Promises: bytes that are lent never change; a unit is never a mixture of two writes that each
// covered it; the cache is never older than the backing; a draft that is not published leaves no
// trace; no reader can block a writer. Every block of 4 KiB has its CRC-32C, taken over from the
// backing or from the draft, so that data is summed once on its way.
//
// It knows neither sockets nor files: Backing is all that it asks of a store, and Registrar of a
// network.
//
// # Words
//
// A unit is 4 to 64 KiB of an object, the least that is cached. A loan is what a reader holds:
// units that neither change nor move until he releases it. A draft is what a writer holds: memory
// that nobody sees until it is published. A write through is in the backing when it is
// acknowledged; a pending one is written back a little later, in order. A fill brings units from
// the backing. A room is memory for a transfer that goes past the cache.
//
// # Parts
//
// Each part calls those below it and none above:
//
//	unifier             Cache: reads the backing (fills, readahead), changes past the cache, rooms
//	internal/writeback  Writer: drafts, publication, pending writes, flushers, what comes again
//	internal/index      Index: which unit is where, loans, range locks, exchange, eviction, streams
//	internal/memory     Pool: mapping, registration, blocks and their sums, who waits for memory
//
// Whose memory is when: a block is the pool's while it is free; private to a draft, a room or a
// loan that fills it; the index's while it is a unit, together with those who hold it. Whoever
// waits for memory holds none, and whoever holds some comes to its end without asking for more.
//
// Three things tell a part something about those above it, without calling them: the pool is made
// with an Evictor, which is the index; Pool.Starved is a channel that the flushers listen to,
// because pending writes hold memory that others wait for; and Index.NewAhead says after a loan
// that something should be read ahead.
//
// # Locks
//
// In this order: range locks (held over calls of the backing: they keep cache and backing in step;
// no mutex), Writer.mu (the queues of pending writes), the index's lock (index and memory
// together: to find a unit, to hold it and to evict others for it is one step), then as leaves
// workers.mu (the workers), the gates and stripe.Sessions. None but range locks is held across a
// call of the backing, a mapping, a wait or a copy of more than 8 KiB.
//
// What blocks: Read and Draft wait for memory and for their share of it; Read for the backing and
// for fills of others; Publish for earlier publications and fills of the same units, for the
// backing unless it is pending, and for less to be pending; Change, Look and Discard as Publish;
// Settle and Sync for the backing. Lend, Query and all that ends something wait for nobody.
//
// Read unifier.go first, then read.go and fetch.go (life of a read), then the parts, from below.
package unifier

import (
	"context"
	"sync/atomic"

	"github.com/sluice-storage/sluice/internal/freelist"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/writeback"
	"github.com/sluice-storage/sluice/wire"
)

// Cache is the owner of the memory. Safe for concurrent use.
type Cache struct {
	cfg     Config
	backing Backing
	stater  stripe.Stater // nil: the backing is none
	index   *index.Index
	back    *writeback.Writer
	takes   *gate.Gate // bytes of rooms
	fills   atomic.Uint64
	workers workers

	// Guarded by the index's lock.
	freeRooms freelist.List[Room]
	freeLocks freelist.List[index.RangeLock] // of changes
}

// UnitBytes is the unit of objects without a hint.
func (c *Cache) UnitBytes() int { return c.cfg.UnitBytes }

// ReadShare is how many bytes of units loans may hold at once. A unit that is held keeps others
// from using its slab of 64 KiB, so what counts is slabs.
func (c *Cache) ReadShare() int64 { return c.cfg.readBytes() }

// ChunkMax is the longest contiguous access that Read and Draft can serve, whatever its alignment
// and unit. Longer requests are chopped by the caller.
func (c *Cache) ChunkMax() int64 { return c.cfg.Shares().Chunk }

// Shares tells how the memory is divided.
func (c *Cache) Shares() Shares { return c.cfg.Shares() }

// Query tells how many bytes of the access are cached.
func (c *Cache) Query(id Key, a seg.Access) (cached int64) {
	c.index.Lock()
	defer c.index.Unlock()
	return c.index.Query(id, a)
}

// Draft makes a draft for an access to one object. Its pieces need be neither sorted nor
// disjoint: later ones win. The memory for all of them is had in one step, waiting behind others;
// what needs more than the drafts' share is refused with errs.TooBig.
func (c *Cache) Draft(ctx context.Context, id Key, a seg.Access, h Hint) (*Draft, error) {
	return c.back.Draft(ctx, id, a, h)
}

// Settle returns when the backing has all that was published in the range before the call. The
// zero Key means all objects.
func (c *Cache) Settle(ctx context.Context, id Key, off, length int64) error {
	return c.back.Settle(ctx, id, off, length)
}

// SettleFile returns when the backing has all that was published of a file's objects before the
// call. What is pending of other files stays pending, but for earlier numbers of the same slots.
func (c *Cache) SettleFile(ctx context.Context, file uint64) error {
	return c.back.SettleFile(ctx, file)
}

// SettleStamp returns when the backing has every write that was published with an earlier number
// of the stamp's slot. Whoever takes a numbered request to the backing past the cache (a direct
// write, a punch) calls it first: a store that has noted a number takes all lower ones of the
// slot for repeats, so a pending write would be lost if it had to be sent again.
func (c *Cache) SettleStamp(ctx context.Context, st wire.Stamp) error {
	return c.back.SettleStamp(ctx, st)
}

// Sync makes all that was published of the object durable. The zero Key means all objects.
func (c *Cache) Sync(ctx context.Context, id Key) error { return c.back.Sync(ctx, id) }

// Wrote remembers that the range was changed past the cache by a request that is not sent again. It
// is called under Change or Discard.
func (c *Cache) Wrote(id Key, off, length int64) { c.back.Wrote(id, off, length) }

// Newer tells which parts of the range were changed since the cache began, or lost something, and
// so lie over a change that comes again. The stamp is that change's, its Life the one that it was
// acknowledged in. It fails with errs.IO when nobody knows. The caller is inside Change.
func (c *Cache) Newer(ctx context.Context, id Key, off, length int64,
	st wire.Stamp) ([]seg.Piece, error) {
	return c.back.Newer(ctx, id, off, length, st)
}

// Promised is how much space of the backing pending writes may need.
func (c *Cache) Promised() int64 { return c.back.Promised() }

// Losses counts how often acknowledged volatile data was lost because it could not be written. A
// server mixes it into its verifier, so that clients send again.
func (c *Cache) Losses() uint64 { return c.back.Losses() }
