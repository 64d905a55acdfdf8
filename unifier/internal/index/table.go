package index

import (
	"context"
	"math"
	"math/bits"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// Open finds or makes the object, and keeps it until Close. A hint may give it another unit.
func (x *Index) Open(id Key, h Hint) *Object {
	o := x.objects[id]
	switch {
	case o == nil:
		o = x.freeObjects.Get()
		size := h.Unit
		if size == 0 {
			size = x.cfg.UnitBytes
		}
		*o = Object{id: id, locks: o.locks[:0], shift: shiftOf(size)}
		o.seed = (id.File*0x9E3779B97F4A7C15 ^ uint64(id.Gen)<<32 ^ uint64(id.Stripe)) *
			0xD6E8FEB86659FD93
		x.objects[id] = o
	case h.Unit != 0 && o.UnitBytes() != int64(h.Unit) && o.busy == 0:
		x.resize(o, h.Unit)
	}
	x.use(o)
	return o
}

func shiftOf(size int) uint8 { return uint8(bits.TrailingZeros(uint(size))) }

// resize gives an object that nobody is at work on another unit.
func (x *Index) resize(o *Object, size int) {
	for u := o.units.First(); u != nil; u = o.units.First() {
		x.drop(u)
	}
	o.shift = shiftOf(size)
	o.streams = streams{}
}

// Close ends an Open.
func (x *Index) Close(o *Object) {
	o.busy--
	x.stats.Busy--
	x.tidy(o)
}

func (x *Index) use(o *Object) {
	o.busy++
	x.stats.Busy++
}

// tidy forgets an object that nothing is known of.
func (x *Index) tidy(o *Object) {
	if o.count == 0 && o.busy == 0 && x.objects[o.id] == o {
		delete(x.objects, o.id)
		x.freeObjects.Put(o)
	}
}

// LockRange waits for a range lock of an open object. It lets go of the index's lock meanwhile. It
// fails with the context's error, and then nothing is locked.
func (x *Index) LockRange(ctx context.Context, o *Object, l *RangeLock) error {
	x.stats.RangeLocks++
	if err := o.locks.lock(ctx, x, l); err != nil {
		x.stats.RangeLocks--
		return errs.Wrap("unifier.LockRange", "object "+o.id.String(), err)
	}
	l.losses = o.losses
	return nil
}

// UnlockRange ends a LockRange.
func (x *Index) UnlockRange(o *Object, l *RangeLock) {
	x.stats.RangeLocks--
	o.locks.unlock(l)
}

// bucket is where a unit is found.
func (x *Index) bucket(o *Object, index int64) **Unit {
	h := (o.seed + uint64(index)) * 0x9E3779B97F4A7C15
	return &x.table[h>>x.tableShift]
}

func (x *Index) find(o *Object, index int64) *Unit {
	for u := *x.bucket(o, index); u != nil; u = u.chain {
		if u.index == index && u.obj == o {
			return u
		}
	}
	return nil
}

// each calls fn for the units of a span. It walks whichever is shorter, the span or the object's
// units. fn may drop the unit it is given and no other.
func (x *Index) each(o *Object, s Span, fn func(*Unit)) {
	if s.Last-s.First < int64(o.count) {
		for index := s.First; index <= s.Last; index++ {
			if u := x.find(o, index); u != nil {
				fn(u)
			}
		}
		return
	}
	for u := o.units.First(); u != nil; {
		next := u.inObject.Next()
		if u.index >= s.First && u.index <= s.Last {
			fn(u)
		}
		u = next
	}
}

// DropSpans takes what is cached of the spans out, but for what is being filled.
func (x *Index) DropSpans(o *Object, spans []Span) {
	for _, s := range spans {
		x.each(o, s, func(u *Unit) {
			if u.fill == nil {
				x.drop(u)
			}
		})
	}
}

// Lose is DropSpans for bytes that were acknowledged and are lost: publications of the object that
// hold a range lock already do not build on them.
func (x *Index) Lose(o *Object, spans []Span) {
	o.losses++
	x.DropSpans(o, spans)
}

// add enters a unit, which must not be there yet, with one pin.
func (x *Index) add(o *Object, index int64, b memory.Block, p Policy) *Unit {
	invariant.Check(b.Shift() == o.shift, "unifier: a unit in memory of another size")
	u := x.freeUnits.Get()
	*u = Unit{obj: o, index: index, block: b, pins: 1, indexed: true, policy: p}
	bucket := x.bucket(o, index)
	u.chain, *bucket = *bucket, u
	o.units.PushFirst(&u.inObject, u)
	o.count++
	b.SetOwner(u)
	x.Memory.Hold(b)
	x.stats.Bytes += int64(b.Size())
	x.policy.add(u)
	return u
}

func (x *Index) pin(u *Unit) {
	if u.pins == 0 {
		x.policy.leave(u)
		x.Memory.Hold(u.block)
	}
	u.pins++
}

// Unpin ends a hold of the unit: it can be evicted when nobody else holds it.
func (x *Index) Unpin(u *Unit) {
	if u.pins--; u.pins > 0 {
		return
	}
	if u.watch != nil {
		select {
		case u.watch <- struct{}{}:
		default: // he has been told
		}
	}
	x.Memory.Unhold(u.block)
	if !u.indexed {
		x.free(u)
		return
	}
	x.policy.enter(u)
	if o := u.obj; u.policy == None {
		x.remove(u)
		x.tidy(o)
	}
}

// remove takes a unit out of the table. Whoever holds it keeps it.
func (x *Index) remove(u *Unit) {
	if !u.indexed {
		return
	}
	if u.pins == 0 {
		x.policy.leave(u)
	}
	x.policy.remove(u)
	x.unlink(u)
	x.stats.Bytes -= int64(u.block.Size())
	if u.pins == 0 {
		x.free(u)
	}
}

// unlink makes a unit impossible to find.
func (x *Index) unlink(u *Unit) {
	o := u.obj
	at := x.bucket(o, u.index)
	for *at != u {
		at = &(*at).chain
	}
	*at = u.chain
	o.units.Remove(&u.inObject)
	o.count--
	u.chain, u.indexed = nil, false
}

func (x *Index) drop(u *Unit) {
	x.stats.Dropped++
	x.remove(u)
}

// free gives back the memory of a unit that nobody holds and nobody can find.
func (x *Index) free(u *Unit) {
	x.Memory.FreeBlock(u.block)
	*u = Unit{}
	x.freeUnits.Put(u)
}

// Evict makes room, for the memory's sake: see memory.Evictor. Where the victim was of another
// class, its neighbours in the slab go too if nobody holds one of them: then the slab is free.
func (x *Index) Evict(shift uint8, ahead bool) bool {
	u := x.policy.victim(ahead)
	if u == nil {
		return false
	}
	b := u.block
	other := b.Shift() != shift
	x.evict(u)
	if !other {
		return true
	}
	if mates, ok := b.Owners(); ok {
		for _, mate := range mates {
			if u, ok := mate.(*Unit); ok {
				x.evict(u)
			}
		}
	}
	return true
}

func (x *Index) evict(u *Unit) {
	o := u.obj
	x.stats.Evictions++
	x.policy.addGhost(u)
	x.remove(u)
	x.tidy(o)
}

// Clear drops all that is cached and not being filled.
func (x *Index) Clear() {
	for _, o := range x.objects {
		x.use(o)
		x.DropSpans(o, []Span{{0, math.MaxInt64}})
		x.Close(o)
	}
}

// Query tells how many bytes of the access are cached.
func (x *Index) Query(id Key, a seg.Access) (cached int64) {
	o := x.objects[id]
	if o == nil || o.count == 0 {
		return 0
	}
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return cached
		}
		x.each(o, Span{p.Off >> o.shift, (p.End() - 1) >> o.shift}, func(u *Unit) {
			if u.fill == nil {
				cached += min(p.End(), (u.index+1)<<o.shift) - max(p.Off, u.index<<o.shift)
			}
		})
	}
}
