package unifier

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Publish makes the draft what everybody reads, and consumes it, also when it fails.
// Publications that share a unit are applied one after the other, to backing and cache alike. A
// request that the stamp numbers and that was applied before is not applied again: repeated.
//
// A volatile write is acknowledged when it is pending, where the cache writes back; it waits while
// too much is. Every other write is in the backing when Publish returns, also one that comes again
// or is to go through (see Again and Through). After a failure nothing
// that it touched is cached, since nobody knows how much the backing has taken. Several pieces that
// must be durable are written first and made durable in one step.
func (d *Draft) Publish(ctx context.Context, st wire.Stamp, dur stripe.Durability) (
	repeated bool, err error) {
	invariant.Check(d.live, "unifier.Draft published after its end")
	if done, err := d.posted.check(); !done || err != nil || len(d.parts) == 0 {
		d.Abort()
		return false, err
	}
	c := d.c
	d.prepare(st)
	back := false
	if dur == stripe.Volatile && !d.through && c.writesBack(d) {
		if err := c.dirty.Acquire(ctx, d.held); err != nil {
			d.end()
			return false, errs.Wrap("unifier.Publish", "", err)
		}
		back = true
	}
	c.mu.Lock()
	inval, err := c.claimLocked(ctx, d.obj, &d.claim)
	c.mu.Unlock()
	var kept bool
	if err == nil {
		repeated, kept, err = d.publish(ctx, inval, dur, back)
	}
	if back && !kept {
		c.dirty.Release(d.held)
	}
	if !kept {
		d.end()
	}
	return repeated, errs.Wrap("unifier.Publish", "", err)
}

// publish does what needs the claim, and ends it. kept means that the draft is pending.
func (d *Draft) publish(ctx context.Context, inval uint64, dur stripe.Durability,
	back bool) (repeated, kept bool, err error) {
	c, o := d.c, d.obj
	if repeated, err = c.admitted(ctx, d, back); errs.KindOf(err) == errs.NoSpace {
		back, err = false, nil // the backing knows best whether it overwrites
	}
	if err != nil || repeated {
		c.mu.Lock()
		c.unclaimLocked(o, &d.claim)
		c.mu.Unlock()
		return repeated, false, err
	}
	if back {
		d.keep(inval)
		return false, true, nil
	}
	c.mu.Lock()
	if o.first != nil && dur == stripe.Volatile {
		// A client may use one slot for all of an object's volatile writes: none overtakes.
		_ = c.flushLocked(ctx, o, c.order)
	}
	if o.first != nil {
		c.settleSpansLocked(o, d.claim.spans)
	}
	err = c.settleSlotLocked(ctx, d.stamp)
	c.mu.Unlock()
	var newer []seg.Piece
	if err == nil && d.again {
		newer, err = c.newer(ctx, o.id, d.stamp, d.pieces)
	}
	if err == nil {
		err = d.takeOver(ctx, newer)
	}
	dur = durabilityOf(dur, newer)
	once := dur
	if len(d.cuts) > 1 {
		once = stripe.Volatile
	}
	if err == nil {
		err = d.writeBacking(ctx, once)
	}
	c.mu.Lock()
	if err != nil {
		c.dropSpansLocked(o, d.claim.spans)
	} else {
		d.exchangeLocked(inval)
	}
	c.unclaimLocked(o, &d.claim)
	c.mu.Unlock()
	if err == nil && once != dur {
		if err = c.backing.Sync(ctx, o.id); err != nil {
			c.mu.Lock()
			c.dropSpansLocked(o, d.claim.spans)
			c.mu.Unlock()
		}
	}
	return false, false, err
}

// admitted asks whether the write is new, and, if it is to be pending, whether it will be taken.
// The number of a list is with its last piece.
func (c *Cache) admitted(ctx context.Context, d *Draft, back bool) (repeated bool, err error) {
	var space int64
	if stripe.Numbered(d.stamp) || back || d.again {
		c.mu.Lock()
		repeated = c.sessions.Repeated(d.stamp)
		if back {
			space = c.promised + d.space()
		}
		c.mu.Unlock()
	} else {
		return false, nil
	}
	if repeated || c.admitter == nil {
		return repeated, nil
	}
	p := d.pieces[len(d.pieces)-1]
	return c.admitter.Admit(ctx, d.obj.id, p.Off, p.Len, d.stamp, space)
}

// space is what the write may need of the store at most.
func (d *Draft) space() (sum int64) {
	for _, p := range d.pieces {
		first, end := p.Off/stripe.GrainBytes, (p.End()+stripe.GrainBytes-1)/stripe.GrainBytes
		sum += (end - first) * stripe.GrainBytes
	}
	return sum
}

// prepare sums what is not summed yet, lists the bytes for the backing in the order of the stream,
// and then orders the parts by unit, keeping the list's order within a unit, for claim and
// exchange.
func (d *Draft) prepare(st wire.Stamp) {
	d.stamp = st
	if !d.summed {
		d.sum(nil)
	}
	at := 0
	for _, p := range d.pieces {
		var g gather
		for left := p.Len; left > 0; at++ {
			x := &d.parts[at]
			d.bytes = g.bytes(d.bytes, d.need.got[x.buf], int(x.at), int(x.hi-x.lo))
			left -= x.hi - x.lo
		}
		d.cuts = append(d.cuts, len(d.bytes))
	}
	slices.SortStableFunc(d.parts, func(a, b part) int { return cmp.Compare(a.unit, b.unit) })
	for i := range d.parts {
		d.claim.spans = addSpan(d.claim.spans, d.parts[i].unit, d.parts[i].unit)
	}
}

// sumsOf are the sums of a piece; nil when it, or a part of it, does not consist of blocks.
func (d *Draft) sumsOf(nth int) []uint32 {
	at := d.sumAt[nth]
	if at < 0 {
		return nil
	}
	return d.sums[at : at+int(d.pieces[nth].Len/blockBytes)]
}

// writeBacking writes piece by piece, in the order of the list. A numbered request is one call to
// the backing: its last piece carries the number.
func (d *Draft) writeBacking(ctx context.Context, dur stripe.Durability) error {
	from := 0
	d.one[0] = unnumbered(d.stamp)
	for i, p := range d.pieces {
		if i == len(d.pieces)-1 {
			d.one[0] = d.stamp
		}
		err := d.c.backing.WriteSums(ctx, d.obj.id, d.bytes[from:d.cuts[i]], p.Off, d.sumsOf(i),
			d.one[:], dur)
		if err != nil {
			return err
		}
		from = d.cuts[i]
		if !d.again {
			d.c.Wrote(d.obj.id, p.Off, p.Len)
		}
	}
	return nil
}

// unnumbered is the stamp of a part of a request.
func unnumbered(st wire.Stamp) wire.Stamp {
	st.Session, st.Slot, st.Seq = 0, 0, 0
	return st
}
