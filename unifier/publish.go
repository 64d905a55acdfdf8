package unifier

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// mergeInPlace is how many bytes may be copied into a cached unit under the cache's lock, when
// nobody has the unit: about as long as finding it takes. More is merged into a fresh buffer.
const mergeInPlace = 8 << 10

// Publish writes the draft through to the backing and then exchanges what is cached. It
// consumes the draft, also when it fails; after a failure nothing that it touched is cached,
// since nobody knows how much the backing has taken. Publications that share a unit are
// applied one after the other, to backing and cache alike.
//
// Several pieces that must be durable are written first and made durable in one step.
func (d *Draft) Publish(ctx context.Context, st wire.Stamp, dur stripe.Durability) (
	repeated bool, err error) {
	invariant.Check(d.live, "unifier.Draft published after its end")
	defer d.end()
	if len(d.parts) == 0 {
		return false, nil
	}
	c := d.c
	c.mu.Lock()
	o := c.objectLocked(d.id)
	o.busy++
	c.mu.Unlock()
	err = d.publish(ctx, o, st, dur)
	c.mu.Lock()
	o.busy--
	c.tidyLocked(o)
	c.mu.Unlock()
	return false, errs.Wrap("unifier.Publish", "", err)
}

func (d *Draft) publish(ctx context.Context, o *object, st wire.Stamp,
	dur stripe.Durability) error {
	c := d.c
	d.sortParts()
	inval, err := c.claim(ctx, o, &d.claim)
	if err != nil {
		return err
	}
	once := dur
	if len(d.pieces) > 1 {
		once = stripe.Volatile
	}
	err = d.writeBacking(ctx, o.id, st, once)
	if err != nil {
		d.dropTouched(o)
	} else {
		d.exchange(o, inval)
	}
	c.mu.Lock()
	c.unclaimLocked(o, &d.claim)
	c.mu.Unlock()
	if err == nil && once != dur {
		if err = c.backing.Sync(ctx, o.id); err != nil {
			d.dropTouched(o)
		}
	}
	return err
}

// writeBacking writes piece by piece, in the order of the list. Only the last one carries the
// request's number: with it the store would take a second one for a repeat.
func (d *Draft) writeBacking(ctx context.Context, id Key, st wire.Stamp,
	dur stripe.Durability) error {
	at, unnumbered := 0, st
	unnumbered.Seq = 0
	for i, p := range d.pieces {
		from, left := at, p.Len
		for left > 0 {
			left -= int64(len(d.bytes[at]))
			at++
		}
		if from == at {
			continue
		}
		piece := unnumbered
		if i == len(d.pieces)-1 {
			piece = st
		}
		if err := d.c.backing.WriteAt(ctx, id, d.bytes[from:at], p.Off, piece, dur); err != nil {
			return err
		}
	}
	return nil
}

// sortParts orders the parts by unit, keeping the list's order within a unit, and makes the
// claim for them. The bytes for the backing stay in the order of the list.
func (d *Draft) sortParts() {
	for i := range d.sges {
		d.bytes = append(d.bytes, d.sges[i].Buf)
	}
	slices.SortStableFunc(d.parts, func(a, b part) int { return cmp.Compare(a.unit, b.unit) })
	for _, p := range d.parts {
		d.claim.spans = addSpan(d.claim.spans, p.unit, p.unit)
	}
}

// dropTouched takes everything that the draft covers out of the cache, fills under way included.
func (d *Draft) dropTouched(o *object) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	o.inval++
	for _, s := range d.claim.spans {
		d.c.eachLocked(o, s.first*d.c.unit, (s.last-s.first+1)*d.c.unit, d.c.dropLocked)
	}
}

// exchange brings the cache up to date, unit by unit.
func (d *Draft) exchange(o *object, inval uint64) {
	for i := 0; i < len(d.parts); {
		j := i + 1
		for j < len(d.parts) && d.parts[j].unit == d.parts[i].unit {
			j++
		}
		d.exchangeUnit(o, inval, d.parts[i:j])
		i = j
	}
}

func (d *Draft) exchangeUnit(o *object, inval uint64, parts []part) {
	for i := len(parts) - 1; i >= 0; i-- {
		if p := parts[i]; p.whole(d.c.unit) {
			// What came before is covered; what came after goes on top, unseen by anybody.
			b := d.bufs[p.buf]
			d.overlay(b, parts[i+1:])
			d.bufs[p.buf] = nil
			if d.c.replace(o, p.unit, b, inval) {
				d.c.count(&d.c.stats.Exchanged)
			}
			return
		}
	}
	d.merge(o, inval, parts)
}

// overlay copies the parts into a buffer, in order.
func (d *Draft) overlay(b *mem.Buf, parts []part) {
	for _, p := range parts {
		mem.Copy(b.Bytes()[p.lo:p.hi], d.bytes[p.nth])
	}
}

// replace makes b the current version of the unit and tells so, unless the object was
// invalidated meanwhile or a fill is waiting to read the unit.
func (c *Cache) replace(o *object, index int64, b *mem.Buf, inval uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := o.units[index]
	if o.inval != inval || c.closed || old != nil && old.fill != nil {
		if old != nil && old.fill == nil {
			c.dropLocked(old)
		}
		b.Return()
		return false
	}
	var protected bool
	if old != nil {
		protected = old.protected
		c.removeLocked(old)
	}
	u := c.addLocked(o, index, b, 1)
	if protected {
		u.protected = true // a write does not make a unit less wanted
		c.policy.protected++
	}
	c.unpinLocked(u)
	return true
}

// merge puts parts of a unit into the cached version: in place when they are small and nobody
// has the unit, else into a fresh version. A unit that is not cached stays so; one for which
// there is no memory leaves the cache.
func (d *Draft) merge(o *object, inval uint64, parts []part) {
	c := d.c
	var sum int64
	for _, p := range parts {
		sum += p.hi - p.lo
	}
	c.mu.Lock()
	u := o.units[parts[0].unit]
	if u == nil || u.fill != nil {
		c.mu.Unlock()
		return
	}
	if u.pins == 0 && sum <= mergeInPlace {
		d.overlay(u.buf, parts)
		c.stats.Merged++
		c.mu.Unlock()
		return
	}
	c.pinLocked(u)
	c.mu.Unlock()
	merged := false
	if fresh := c.tryTake(); fresh != nil {
		mem.Copy(fresh.Bytes(), u.buf.Bytes())
		d.overlay(fresh, parts)
		merged = c.replace(o, u.index, fresh, inval)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if merged {
		c.stats.Merged++
	} else if u.indexed {
		c.dropLocked(u)
	}
	c.unpinLocked(u)
}
