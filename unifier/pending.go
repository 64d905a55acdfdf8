package unifier

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Pending writes. A volatile write is acknowledged when its draft stands in its object's queue of
// pending writes. The draft holds its memory: whole units together with the cache, parts alone.
//
//	Cache.pending   oldest ... youngest, of all objects: what is old goes first
//	object.first    the same, of one object: written strictly in this order
//	Draft.before    the pending write with an earlier number of the same slot
//
// Three rules keep the backing right:
//
//   - An object's pending writes reach the backing in their order. Whoever goes to the backing
//     himself (a fill, a write through, Change) settles what is pending of his units first, under
//     his claim, which keeps new pending writes away. Flushing needs no claim and no memory.
//   - A slot's numbers reach the backing in their order, of whatever objects they are: a store that
//     has noted a number takes lower ones for repeats, so an earlier write that a crash has lost
//     could not be sent again.
//   - When a pending write cannot be written, all pending writes are dropped, with what is cached
//     of them, and Losses is raised: the clients send again all that was not synced.

// WritesBack tells whether volatile writes may be acknowledged before the backing has them.
func (c *Cache) WritesBack() bool { return c.dirty != nil && c.admitter != nil }

// writesBack tells whether a volatile write of this draft may be pending.
func (c *Cache) writesBack(d *Draft) bool {
	if !c.WritesBack() || d.held > c.dirty.Total()/4 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.through[d.obj.id] && !c.closed
}

// keep publishes the draft and makes it pending; it ends the claim. The memory counts as dirty from
// then on, not as being drafted.
func (d *Draft) keep(inval uint64) {
	c := d.c
	c.mu.Lock()
	d.back = true
	d.exchangeLocked(inval)
	c.pendLocked(d)
	for _, p := range d.pieces {
		c.since.add(d.obj.id, p)
	}
	c.unclaimLocked(d.obj, &d.claim)
	held := d.held
	c.flushSoonLocked()
	c.mu.Unlock()
	c.drafts.Release(held)
}

// pendLocked puts the draft at the end of the queues.
func (c *Cache) pendLocked(d *Draft) {
	o := d.obj
	c.order++
	d.order, d.since = c.order, c.now()
	d.ahead = o.last
	if o.last == nil {
		o.first = d
	} else {
		o.last.behind = d
	}
	o.last = d
	c.dirtyBytes += d.held
	c.promised += d.space()
	d.prevAll, d.nextAll = c.lastPending, nil
	if c.lastPending == nil {
		c.pending = d
	} else {
		c.lastPending.nextAll = d
	}
	c.lastPending = d
	if o.dirty == nil {
		o.dirty = map[int64]int32{}
	}
	for _, s := range d.claim.spans {
		for index := s.first; index <= s.last; index++ {
			o.dirty[index]++
		}
	}
	if stripe.Numbered(d.stamp) {
		key := stripe.SessionSlot{Session: d.stamp.Session, Slot: d.stamp.Slot}
		if before := c.slots[key]; before != nil {
			d.before, d.beforeOrder = before, before.order
		}
		c.slots[key] = d
		c.sessions.Note(d.stamp)
	}
}

// unpendLocked takes a draft out of the queues, and ends it.
func (c *Cache) unpendLocked(d *Draft) {
	o := d.obj
	if d.ahead == nil {
		o.first = d.behind
	} else {
		d.ahead.behind = d.behind
	}
	if d.behind == nil {
		o.last = d.ahead
	} else {
		d.behind.ahead = d.ahead
	}
	if d.prevAll == nil {
		c.pending = d.nextAll
	} else {
		d.prevAll.nextAll = d.nextAll
	}
	if d.nextAll == nil {
		c.lastPending = d.prevAll
	} else {
		d.nextAll.prevAll = d.prevAll
	}
	for _, s := range d.claim.spans {
		for index := s.first; index <= s.last; index++ {
			if o.dirty[index]--; o.dirty[index] <= 0 {
				delete(o.dirty, index)
			}
		}
	}
	key := stripe.SessionSlot{Session: d.stamp.Session, Slot: d.stamp.Slot}
	if c.slots[key] == d {
		delete(c.slots, key)
	}
	held := d.held
	c.dirtyBytes -= held
	c.promised -= d.space()
	d.endLocked()
	c.dirty.Release(held)
}

// waitsLocked is the pending write that has to reach the backing before d; nil if there is none.
func (c *Cache) waitsLocked(d *Draft) *Draft {
	b := d.before
	if b == nil || b.order != d.beforeOrder {
		return nil // it was written, and perhaps the draft is somebody else's by now
	}
	return b
}

// settleSpansLocked returns when nothing is pending of the units, which the caller has claimed,
// whether somebody still wants that or not. A loss is not his concern: then the backing's bytes are
// what counts.
func (c *Cache) settleSpansLocked(o *object, spans []span) {
	for _, s := range spans {
		if c.dirtyLocked(o, s) {
			_ = c.flushLocked(context.Background(), o, c.order)
			return
		}
	}
}

func (c *Cache) dirtyLocked(o *object, s span) bool {
	if s.last-s.first >= int64(len(o.dirty)) {
		for index := range o.dirty {
			if index >= s.first && index <= s.last {
				return true
			}
		}
		return false
	}
	for index := s.first; index <= s.last; index++ {
		if o.dirty[index] > 0 {
			return true
		}
	}
	return false
}

// settleSlotLocked returns when no earlier write of the stamp's slot is pending.
func (c *Cache) settleSlotLocked(ctx context.Context, st wire.Stamp) error {
	if !stripe.Numbered(st) {
		return nil
	}
	d := c.slots[stripe.SessionSlot{Session: st.Session, Slot: st.Slot}]
	if d == nil {
		return nil
	}
	return c.flushLocked(ctx, d.obj, d.order)
}

// SettleStamp returns when the backing has every write that was published with an earlier number
// of the stamp's slot. Whoever takes a numbered request to the backing past the cache (a direct
// write, a punch) calls it first: a store that has noted a number takes all lower ones of the
// slot for repeats, so a pending write would be lost if it had to be sent again.
func (c *Cache) SettleStamp(ctx context.Context, st wire.Stamp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errs.Wrap("unifier.SettleStamp", "", c.settleSlotLocked(ctx, st))
}

// Settle returns when the backing has all that was published in the range before the call. The
// zero Key means all objects.
func (c *Cache) Settle(ctx context.Context, id Key, off, length int64) error {
	const op = "unifier.Settle"
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == (Key{}) {
		return errs.Wrap(op, "", c.flushAllLocked(ctx))
	}
	o := c.objects[id]
	if o == nil || o.first == nil || length <= 0 {
		return nil
	}
	end := off + min(length, math.MaxInt64-off) - 1
	if !c.dirtyLocked(o, span{off >> o.shift, end >> o.shift}) {
		return nil
	}
	return errs.Wrap(op, id.String(), c.flushLocked(ctx, o, c.order))
}

// SettleFile returns when the backing has all that was published of a file's objects before the
// call. What is pending of other files stays pending, but for earlier numbers of the same slots.
func (c *Cache) SettleFile(ctx context.Context, file uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	mark := c.order
	var ids []Key
	seen := map[Key]bool{}
	for d := c.pending; d != nil; d = d.nextAll {
		if id := d.obj.id; id.File == file && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		o := c.objects[id] // another one by now, or none, if somebody else has settled it
		if o == nil {
			continue
		}
		if err := c.flushLocked(ctx, o, mark); err != nil {
			return errs.Wrap("unifier.SettleFile", id.String(), err)
		}
	}
	return nil
}

// Sync makes all that was published of the object durable. The zero Key means all objects.
func (c *Cache) Sync(ctx context.Context, id Key) error {
	if c.dirty != nil {
		if err := c.Settle(ctx, id, 0, math.MaxInt64); err != nil {
			return err
		}
	}
	return c.backing.Sync(ctx, id)
}

// Losses counts how often acknowledged volatile data was lost because it could not be written. A
// server mixes it into its verifier, so that clients send again.
func (c *Cache) Losses() uint64 { return c.losses.Load() }

// loseLocked drops all pending writes but those that somebody else is writing at the moment, and
// what is cached of them. The ones in the air have no earlier ones left that they would outrun.
func (c *Cache) loseLocked() {
	c.dropPendingLocked(nil)
	c.sessions = &stripe.Sessions{}
	c.since = since{} // what was written before may now be sent again by those who wrote it
	if c.keeper != nil {
		c.keeper.NewLife()
	}
}

// dropPendingLocked drops what is pending of an object, or of all for nil, in the same way.
func (c *Cache) dropPendingLocked(only *object) {
	for d := c.pending; d != nil; {
		o, next := d.obj, d.nextAll
		if !d.flying && (only == nil || o == only) {
			o.inval++
			o.busy++
			c.dropSpansLocked(o, d.claim.spans)
			c.unpendLocked(d)
			o.busy--
			c.tidyLocked(o)
		}
		d = next
	}
}
