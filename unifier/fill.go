package unifier

import (
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
)

// fill brings missing units of one object from the backing. Whoever started it runs it; others
// wait in its line. It is used again when the last of them has left.
type fill struct {
	obj   *object
	units []*unit // held by whoever started the fill
	claim claim
	over  bool
	err   error // valid when over
	wait  line
	refs  int // whoever started it, and those who joined

	bufs [][]byte
	sums []uint32
	next *fill // in Cache.spareFills
}

// newFillLocked begins a fill, which holds on to the object until it is over.
func (c *Cache) newFillLocked(o *object) *fill {
	f := c.spareFills
	if f == nil {
		f = &fill{}
	} else {
		c.spareFills = f.next
	}
	f.obj, f.refs, f.over, f.err, f.next = o, 1, false, nil, nil
	f.claim.shared = true
	o.busy++
	return f
}

func (f *fill) add(u *unit) {
	u.fill = f
	f.units = append(f.units, u)
}

func (c *Cache) leaveFillLocked(f *fill) {
	if f.refs--; f.refs > 0 {
		return
	}
	clear(f.units)
	clear(f.bufs)
	f.obj, f.units, f.bufs, f.claim.spans = nil, f.units[:0], f.bufs[:0], f.claim.spans[:0]
	f.next, c.spareFills = c.spareFills, f
}

// waitFill waits until a fill of somebody else is over.
func (c *Cache) waitFill(ctx context.Context, f *fill, l *Loan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.over {
		return nil
	}
	l.wait.arm()
	f.wait.push(&l.wait)
	return c.standLocked(ctx, &f.wait, &l.wait)
}

// run reads the units and tells everybody who waits.
func (c *Cache) run(ctx context.Context, f *fill) error {
	slices.SortFunc(f.units, func(a, b *unit) int { return int(a.index - b.index) })
	for _, u := range f.units {
		f.claim.spans = addSpan(f.claim.spans, u.index, u.index)
	}
	c.mu.Lock()
	_, err := c.claimLocked(ctx, f.obj, &f.claim)
	claimed := err == nil
	if claimed && f.obj.first != nil && !c.defects.skipSettle {
		c.settleSpansLocked(ctx, f.obj, f.claim.spans)
	}
	c.mu.Unlock()
	if claimed {
		err = c.readSpans(ctx, f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if claimed {
		c.unclaimLocked(f.obj, &f.claim)
	}
	for _, u := range f.units {
		// A unit that was dropped meanwhile serves those who asked before, and nobody else.
		u.fill = nil
		if err != nil {
			c.removeLocked(u)
		}
	}
	f.obj.busy--
	c.tidyLocked(f.obj)
	f.err, f.over = err, true
	for n := f.wait.first; n != nil; n = f.wait.first {
		f.wait.remove(n)
		n.wake()
	}
	return errs.Wrap("unifier.fill", "", err)
}

// readSpans makes one backing read of each run of adjacent units.
func (c *Cache) readSpans(ctx context.Context, f *fill) error {
	units, size := f.units, f.obj.unit()
	for _, s := range f.claim.spans {
		n := int(s.last - s.first + 1)
		per := int(size / blockBytes)
		f.bufs, f.sums = f.bufs[:0], slices.Grow(f.sums[:0], n*per)[:n*per]
		var g gather
		for _, u := range units[:n] {
			f.bufs = g.bytes(f.bufs, u.blk, 0, int(size))
		}
		c.fills.Add(1)
		err := c.backing.ReadSums(ctx, f.obj.id, f.bufs, s.first*size, f.sums)
		if err != nil {
			return err
		}
		for i, u := range units[:n] {
			copy(u.sums[:], f.sums[i*per:(i+1)*per])
		}
		units = units[n:]
	}
	return nil
}
