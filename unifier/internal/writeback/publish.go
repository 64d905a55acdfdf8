package writeback

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
	"github.com/sluice-storage/sluice/wire"
)

// Again says that the draft is a write that was acknowledged once, before the cache began or lost
// something. Publish leaves what was written since on top of it; its stamp's Life is that of the
// acknowledgement.
func (d *Draft) Again() { d.again, d.through = true, true }

// Through has Publish write the draft through to the backing, be it volatile.
func (d *Draft) Through() { d.through = true }

// Publish makes the draft what everybody reads, and consumes it, also when it fails.
// Publications that share a unit are applied one after the other, to backing and cache alike. A
// request that the stamp numbers and that was applied before is not applied again: repeated.
//
// A volatile write is acknowledged when it is pending, where the cache writes back; it waits while
// too much is. Every other write is in the backing when Publish returns, also one that comes again
// or is to go through (see Again and Through). After a failure nothing that it touched is cached,
// since nobody knows how much the backing has taken. Several pieces that must be durable are
// written first and made durable in one step.
func (d *Draft) Publish(ctx context.Context, st wire.Stamp, dur stripe.Durability) (
	repeated bool, err error) {
	const op = "unifier.Publish"
	invariant.Check(d.live, "unifier.Draft published after its end")
	if len(d.pub.Parts) == 0 {
		d.end()
		return false, nil
	}
	w := d.w
	d.prepare(st)
	back := dur == stripe.Volatile && !d.through && w.mayPend(d)
	if back {
		if err := w.dirty.Acquire(ctx, d.held); err != nil {
			d.end()
			return false, errs.Wrap(op, "", err)
		}
	}
	x := w.index
	x.Lock()
	err = x.LockRange(ctx, d.pub.Object, &d.pub.Range)
	x.Unlock()
	var kept bool
	if err == nil {
		repeated, kept, err = d.publish(ctx, dur, back)
	}
	if !kept {
		if back {
			w.dirty.Release(d.held)
		}
		d.end()
	}
	return repeated, errs.Wrap(op, "", err)
}

// publish does what needs the range lock, and ends it. kept means that the draft is pending.
func (d *Draft) publish(ctx context.Context, dur stripe.Durability, back bool) (
	repeated, kept bool, err error) {
	w, x, space := d.w, d.w.index, d.space()
	// From here on, so that the same space is not promised twice, nor used by a write that goes
	// through although it is promised to one that is pending.
	promised := w.promised.Add(space)
	repeated, err = d.admitted(ctx, back, promised)
	short := errs.KindOf(err) == errs.NoSpace
	if short {
		back, err = false, nil // the backing knows best whether it overwrites
	}
	if err == nil && !repeated && back {
		d.keep() // and the promise
		return false, true, nil
	}
	defer w.promised.Add(-space)
	if err != nil || repeated {
		x.Lock()
		x.UnlockRange(d.pub.Object, &d.pub.Range)
		x.Unlock()
		return repeated, false, err
	}
	return false, false, d.writeThrough(ctx, dur, short)
}

// admitted asks whether the write is new, and whether there is room for it and for all that was
// promised some. One that goes through, with nothing else pending, just tries. The number of a list
// is with its last piece.
func (d *Draft) admitted(ctx context.Context, back bool, promised int64) (repeated bool,
	err error) {
	w, alone := d.w, !back && promised <= d.space()
	if !stripe.Numbered(d.stamp) && alone && !d.again {
		return false, nil
	}
	repeated = w.sessions.Load().Repeated(d.stamp)
	if repeated || w.admitter == nil {
		return repeated, nil
	}
	if alone {
		promised = 0
	}
	p := d.pieces[len(d.pieces)-1]
	return w.admitter.Admit(ctx, d.id(), p.Off, p.Len, d.stamp, promised)
}

// writeThrough brings the draft to the backing and then to the cache. short: there may not be room
// for it and for what is pending, which has been acknowledged and comes first.
func (d *Draft) writeThrough(ctx context.Context, dur stripe.Durability, short bool) error {
	w, x, o := d.w, d.w.index, d.pub.Object
	err := w.settleBefore(ctx, d, dur, short)
	var newer []seg.Piece
	if err == nil && d.again {
		newer, err = w.newer(ctx, o.ID(), d.stamp, d.pieces)
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
	x.Lock()
	if err != nil {
		x.DropSpans(o, d.pub.Range.Spans)
	} else {
		x.Exchange(&d.pub)
	}
	x.UnlockRange(o, &d.pub.Range)
	x.Unlock()
	if err == nil && once != dur {
		if err = w.backing.Sync(ctx, o.ID()); err != nil {
			x.Lock()
			x.DropSpans(o, d.pub.Range.Spans)
			x.Unlock()
		}
	}
	return err
}

// writesBack tells whether volatile writes may be acknowledged before the backing has them.
func (w *Writer) writesBack() bool { return w.dirty != nil && w.admitter != nil }

// mayPend tells whether a volatile write of this draft may be pending.
func (w *Writer) mayPend(d *Draft) bool {
	if !w.writesBack() || d.held > w.dirty.Total()/4 || w.closed.Load() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.through[d.id()]
}

// keep publishes the draft and makes it pending; it ends the range lock. The memory counts as dirty
// from then on, not as being drafted.
func (d *Draft) keep() {
	w, x, held := d.w, d.w.index, d.held
	d.pub.Hold = true
	x.Lock()
	x.Exchange(&d.pub)
	x.Unlock()
	w.mu.Lock()
	w.pendLocked(d)
	for _, p := range d.pieces {
		w.since.add(d.id(), p)
	}
	x.Lock()
	x.UnlockRange(d.pub.Object, &d.pub.Range) // before a flusher can end the draft
	x.Unlock()
	w.flushSoonLocked(d)
	w.mu.Unlock()
	w.drafts.Release(held)
}

// prepare sums what is not summed yet, lists the bytes for the backing in the order of the stream,
// and then orders the parts by unit, keeping the list's order within a unit, for range lock and
// exchange.
func (d *Draft) prepare(st wire.Stamp) {
	d.stamp = st
	if !d.summed {
		d.sum(nil)
	}
	parts, at := d.pub.Parts, 0
	for _, p := range d.pieces {
		var g memory.Gather
		for left := p.Len; left > 0; at++ {
			x := &parts[at]
			d.bytes = g.Bytes(d.bytes, d.pub.Blocks.Got[x.Block], int(x.At), int(x.Hi-x.Lo))
			left -= x.Hi - x.Lo
		}
		d.cuts = append(d.cuts, len(d.bytes))
	}
	slices.SortStableFunc(parts, func(a, b index.Part) int { return cmp.Compare(a.Unit, b.Unit) })
	for i := range parts {
		d.pub.Range.Add(parts[i].Unit)
	}
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
		err := d.w.backing.WriteSums(ctx, d.id(), d.bytes[from:d.cuts[i]], p.Off, d.sumsOf(i),
			d.one[:], dur)
		if err != nil {
			return err
		}
		from = d.cuts[i]
		if !d.again {
			d.w.Wrote(d.id(), p.Off, p.Len)
		}
	}
	return nil
}
