package unifier

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// Room is private memory for a transfer that goes past the cache.
type Room struct {
	c      *Cache
	blocks memory.Request
	sges   []fabric.Sge
	mem    [][]byte
	held   int64
}

// Take waits for that much memory, which counts in the cache's bound and in the share of such
// transfers: see TakeShare. More than that is refused with errs.TooBig.
func (c *Cache) Take(ctx context.Context, bytes int) (*Room, error) {
	const op = "unifier.Take"
	held := (int64(bytes) + memory.SlabBytes - 1) &^ (memory.SlabBytes - 1)
	if bytes <= 0 || held > c.takes.Total() {
		return nil, errs.Newf(errs.TooBig, op, "", "%d bytes, at most %d", bytes, c.takes.Total())
	}
	if err := c.takes.Acquire(ctx, held); err != nil {
		return nil, errs.Wrap(op, "", err)
	}
	x := c.index
	x.Lock()
	r := c.freeRooms.Get()
	r.c, r.held = c, held
	r.blocks.Ask(memory.SlabShift, int(held>>memory.SlabShift))
	err := x.Memory.Allocate(ctx, &r.blocks)
	x.Unlock()
	if err != nil {
		r.Return()
		return nil, errs.Wrap(op, "", err)
	}
	var forNet, forDisk memory.Gather
	for _, b := range r.blocks.Got {
		n := min(bytes, memory.SlabBytes)
		r.sges = forNet.Sge(r.sges, b, 0, n)
		r.mem = forDisk.Bytes(r.mem, b, 0, n)
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
	c.index.Lock()
	c.index.Memory.Free(&r.blocks)
	c.freeRooms.Put(r)
	c.index.Unlock()
	c.takes.Release(held)
}
