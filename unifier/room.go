package unifier

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/mem"
)

// growthLocked is how many bytes the next raw chunk would have; 0 when there is no room for one.
func (c *Cache) growthLocked() int64 {
	left := c.cfg.MemoryBytes - c.reserved - c.mapped
	if c.stuck || left < slabBytes || c.closed {
		return 0
	}
	return min(left, c.chunkBytes) &^ (slabBytes - 1)
}

// growLocked maps raw chunks for those who wait. It lets go of the lock while it maps.
func (c *Cache) growLocked() {
	for !c.queue.Empty() && !c.mapping && c.growthLocked() > 0 {
		c.growOnceLocked()
	}
}

func (c *Cache) growOnceLocked() {
	size := c.growthLocked()
	if size == 0 {
		return
	}
	c.mapping = true
	c.chargeLocked(size)
	c.mu.Unlock()
	k, err := c.mapChunk(size, false)
	c.mu.Lock()
	c.mapping = false
	if err != nil {
		// The host has no more: the cache lives with what it has until Shrink.
		c.mapped -= size
		c.stuck = true
		c.stats.MapFailures++
	} else {
		c.memory.add(k)
	}
	c.feedLocked()
}

// chargeLocked counts mapped memory before it is mapped.
func (c *Cache) chargeLocked(size int64) {
	c.mapped += size
	c.memory.high = max(c.memory.high, c.mapped+c.reserved)
	invariant.Check(c.mapped+c.reserved <= c.cfg.MemoryBytes, "unifier: memory above its bound")
}

// mapChunk makes a chunk and tells the registrar of it.
func (c *Cache) mapChunk(size int64, ready bool) (*chunk, error) {
	opts := mem.ArenaOptions{Bytes: int(size), Source: c.cfg.Source, Limit: c.limit,
		Huge: c.cfg.HugePages}
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
	if c.cfg.Registrar != nil {
		if err := c.cfg.Registrar.Attach(a); err != nil {
			_ = a.Close()
			return nil, err
		}
	}
	return newChunk(a, size, ready), nil
}

// unmap gives a chunk back that the cache has forgotten.
func (c *Cache) unmap(k *chunk) error {
	if c.cfg.Registrar != nil {
		c.cfg.Registrar.Detach(k.arena)
	}
	return k.arena.Close()
}

// Shrink gives raw memory back to the host, about as much as it is told, evicting what is cached
// there, and tells how much it was. What is lent or drafted keeps its chunk where it is. The cache
// may grow again afterwards: to keep it small see Reserve.
func (c *Cache) Shrink(bytes int64) (given int64) {
	for given < bytes {
		c.mu.Lock()
		k := c.idleChunkLocked()
		if k != nil {
			c.memory.remove(k)
		}
		c.mu.Unlock()
		if k == nil {
			return given
		}
		_ = c.unmap(k) // the memory is not used again, whatever the host says
		size := int64(len(k.slabs)) << slabShift
		c.mu.Lock()
		c.mapped -= size
		c.stuck = false
		c.mu.Unlock()
		given += size
	}
	return given
}

// idleChunkLocked empties a raw chunk of which nothing is held.
func (c *Cache) idleChunkLocked() *chunk {
	if !c.queue.Empty() {
		return nil // somebody waits for what would be freed
	}
	for i := len(c.memory.chunks) - 1; i >= 0; i-- {
		k := c.memory.chunks[i]
		if k.ready || !k.idle() {
			continue
		}
		for j := range k.slabs {
			for _, u := range k.slabs[j].owners {
				if u != nil {
					c.evictUnitLocked(u)
				}
			}
		}
		return k
	}
	return nil
}

func (k *chunk) idle() bool {
	for i := range k.slabs {
		if !k.slabs[i].idle() {
			return false
		}
	}
	return true
}

// Reserve counts memory that is used elsewhere (eager slots, what a store has logged and not yet
// applied) inside the same bound: the cache maps that much less. It gives raw memory back for it
// if it must, and fails with errs.NoMemory when what is ready, or held at the moment, is in the
// way; so it is best called at the start.
func (c *Cache) Reserve(bytes int64) error {
	for {
		c.mu.Lock()
		left := c.cfg.MemoryBytes - c.reserved - c.mapped
		if bytes <= left {
			c.reserved += bytes
			c.memory.high = max(c.memory.high, c.mapped+c.reserved)
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		if c.Shrink(1) == 0 {
			return errs.Newf(errs.NoMemory, "unifier.Reserve", "",
				"%d bytes wanted, %d can be had", bytes, left)
		}
	}
}

// Unreserve ends a reservation.
func (c *Cache) Unreserve(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved -= bytes
	invariant.Check(c.reserved >= 0, "unifier: more unreserved than reserved")
}

// Room is private memory for a transfer that goes past the cache.
type Room struct {
	c    *Cache
	need need
	sges []fabric.Sge
	mem  [][]byte
	held int64
	next *Room // in Cache.spareRooms
}

// Take waits for that much memory, which counts in the cache's bound and in the share of such
// transfers: see TakeShare. More than that is refused with errs.TooBig.
func (c *Cache) Take(ctx context.Context, bytes int) (*Room, error) {
	const op = "unifier.Take"
	held := (int64(bytes) + slabBytes - 1) &^ (slabBytes - 1)
	if bytes <= 0 || held > c.takes.Total() {
		return nil, errs.Newf(errs.TooBig, op, "", "%d bytes, at most %d", bytes, c.takes.Total())
	}
	if err := c.takes.Acquire(ctx, held); err != nil {
		return nil, errs.Wrap(op, "", err)
	}
	c.mu.Lock()
	r := c.spareRooms
	if r == nil {
		r = &Room{c: c}
	} else {
		c.spareRooms = r.next
	}
	r.held = held
	r.need.shift, r.need.count = slabShift, int(held>>slabShift)
	err := c.obtainLocked(ctx, &r.need)
	c.mu.Unlock()
	if err != nil {
		r.Return()
		return nil, errs.Wrap(op, "", err)
	}
	var forNet, forDisk gather
	for _, b := range r.need.got {
		n := min(bytes, slabBytes)
		r.sges = forNet.sge(r.sges, b, 0, n)
		r.mem = forDisk.bytes(r.mem, b, 0, n)
		bytes -= n
	}
	return r, nil
}

// TakeShare is how many bytes all rooms together may have.
func (c *Cache) TakeShare() int64 { return c.takes.Total() }

// Sges are the pieces of the memory, in order.
func (r *Room) Sges() []fabric.Sge { return r.sges }

// Bytes are the same pieces as plain memory.
func (r *Room) Bytes() [][]byte { return r.mem }

// Return gives the memory back. The room must not be used afterwards.
func (r *Room) Return() {
	c, held := r.c, r.held
	invariant.Check(held > 0, "unifier.Room returned twice")
	clear(r.sges)
	clear(r.mem)
	r.sges, r.mem, r.held = r.sges[:0], r.mem[:0], 0
	c.mu.Lock()
	c.giveLocked(&r.need)
	r.next, c.spareRooms = c.spareRooms, r
	c.feedLocked()
	c.mu.Unlock()
	c.takes.Release(held)
}
