package unifier

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/wire"
)

// Settle returns when the backing has all that was published in the range. The zero Key means
// all objects.
func (c *Cache) Settle(ctx context.Context, id Key, off, length int64) error { return nil }

// SettleStamp returns when the backing has every write that was published with an earlier number
// of the stamp's slot. Whoever takes a numbered request to the backing past the cache (a direct
// write, a punch) calls it first: a store that has noted a number takes all lower ones of the
// slot for repeats, so a pending write would be lost if it had to be sent again.
func (c *Cache) SettleStamp(ctx context.Context, st wire.Stamp) error { return nil }

// Change lets fn change the range in the backing: what was published there is in the backing
// before, nothing enters or leaves the cache there meanwhile, and what was cached is dropped
// afterwards, whether fn succeeds or not.
func (c *Cache) Change(ctx context.Context, id Key, off, length int64, fn func() error) error {
	err := fn()
	c.Invalidate(id, off, length)
	return err
}

// Discard is Change of the whole object for its removal: what was published and is not in the
// backing yet is forgotten instead of written.
func (c *Cache) Discard(ctx context.Context, id Key, fn func() error) error {
	return c.Change(ctx, id, 0, math.MaxInt64, fn)
}

// Sync makes all that was published of the object durable. The zero Key means all objects.
func (c *Cache) Sync(ctx context.Context, id Key) error { return c.backing.Sync(ctx, id) }

// Losses counts how often acknowledged volatile data was lost because it could not be written.
func (c *Cache) Losses() uint64 { return 0 }

// Reserve takes memory that is used elsewhere out of the bound, Unreserve gives it back.
func (c *Cache) Reserve(bytes int64) error { return nil }

// Unreserve ends a reservation.
func (c *Cache) Unreserve(bytes int64) {}

// Shrink gives memory back to the system and tells how much.
func (c *Cache) Shrink(bytes int64) int64 { return 0 }

// Room is private memory, for transfers that go past the cache.
type Room struct {
	bufs []*mem.Buf
	sges []fabric.Sge
	mem  [][]byte
}

// Take waits for memory from the same bound.
func (c *Cache) Take(ctx context.Context, bytes int) (*Room, error) {
	r := &Room{}
	for bytes > 0 {
		b, err := c.take(ctx)
		if err != nil {
			r.Return()
			return nil, errs.Wrap("unifier.Take", "", err)
		}
		n := min(bytes, b.Len())
		r.bufs = append(r.bufs, b)
		r.sges = append(r.sges, b.Sge(0, n))
		r.mem = append(r.mem, b.Bytes()[:n])
		bytes -= n
	}
	return r, nil
}

// Sges are the pieces of the memory, in order.
func (r *Room) Sges() []fabric.Sge { return r.sges }

// Bytes are the same pieces as plain memory.
func (r *Room) Bytes() [][]byte { return r.mem }

// Return gives the memory back.
func (r *Room) Return() {
	for _, b := range r.bufs {
		b.Return()
	}
	*r = Room{}
}
