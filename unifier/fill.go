package unifier

import (
	"cmp"
	"context"
	"slices"
)

// fill brings missing units of one object from the backing. It belongs to the loan that
// started it; other loans wait for done.
type fill struct {
	obj   *object
	units []*unit // ascending
	claim claim
	done  chan struct{}
	err   error // valid after done
}

// startLocked enters a unit without bytes, pinned for the loan, and notes it in the loan's fill.
func (c *Cache) startLocked(o *object, index int64, l *Loan) *unit {
	if l.own == nil {
		l.own = &fill{obj: o, claim: claim{shared: true}, done: make(chan struct{})}
		o.busy++
	}
	f := l.own
	u := c.addLocked(o, index, nil, 1)
	u.fill = f
	f.units = append(f.units, u)
	return u
}

// run reads the units and tells everybody who waits.
func (c *Cache) run(ctx context.Context, f *fill) error {
	err := c.prepare(ctx, f)
	claimed := err == nil
	if claimed {
		err = c.readSpans(ctx, f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if claimed {
		c.unclaimLocked(f.obj, &f.claim)
	}
	for _, u := range f.units {
		// A unit that an Invalidate took out meanwhile serves those who asked before it, and
		// nobody else.
		u.fill = nil
		if err != nil {
			c.removeLocked(u)
		}
	}
	f.obj.busy--
	c.tidyLocked(f.obj)
	f.err = err
	close(f.done)
	return err
}

// prepare gets the memory, then the claim.
func (c *Cache) prepare(ctx context.Context, f *fill) error {
	// A list need not be sorted; units and spans are.
	slices.SortFunc(f.units, func(a, b *unit) int { return cmp.Compare(a.index, b.index) })
	f.claim.spans = f.claim.spans[:0]
	for _, u := range f.units {
		f.claim.spans = addSpan(f.claim.spans, u.index, u.index)
		b, err := c.take(ctx)
		if err != nil {
			return err
		}
		u.buf = b
	}
	_, err := c.claim(ctx, f.obj, &f.claim)
	return err
}

// readSpans makes one backing read of each run of adjacent units.
func (c *Cache) readSpans(ctx context.Context, f *fill) error {
	bufs := make([][]byte, len(f.units))
	for i, u := range f.units {
		bufs[i] = u.buf.Bytes()
	}
	for _, s := range f.claim.spans {
		n := int(s.last - s.first + 1)
		c.count(&c.stats.Fills)
		if err := c.backing.ReadAt(ctx, f.obj.id, bufs[:n], s.first*c.unit); err != nil {
			return err
		}
		bufs = bufs[n:]
	}
	return nil
}
