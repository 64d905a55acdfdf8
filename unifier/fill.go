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
	refs  int // whoever started it, those who joined, and those who help

	nextSpan, nextUnit int   // that nobody reads yet
	active             int   // readers of the backing
	failed             error // the first error of one of them
	rest               need  // the owner's, when he waits for the others

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
	f.nextSpan, f.nextUnit, f.failed = 0, 0, nil
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
	f.obj, f.units, f.claim.spans = nil, f.units[:0], f.claim.spans[:0]
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
	if claimed && f.obj.first != nil {
		c.settleSpansLocked(f.obj, f.claim.spans)
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
	f.wait.dismiss()
	return errs.Wrap("unifier.fill", "", err)
}

// helpersMax is how many workers help to read the places of one fill.
const helpersMax = 7

// readSpans makes one backing read of each run of adjacent units. Several places are read in
// parallel, with the help of workers that have nothing else to do.
func (c *Cache) readSpans(ctx context.Context, f *fill) error {
	if len(f.claim.spans) == 1 {
		c.lift(ctx, f)
		return f.failed
	}
	c.mu.Lock()
	free := workersMax - (c.workers - c.idle) - c.calls.len()
	for range min(len(f.claim.spans)-1, helpersMax, free) {
		f.refs++
		c.postLocked(&c.calls, job{help: f})
	}
	c.mu.Unlock()
	c.lift(ctx, f)
	c.mu.Lock()
	defer c.mu.Unlock()
	for f.active > 0 {
		f.rest.arm()
		c.mu.Unlock()
		<-f.rest.ready
		c.mu.Lock()
	}
	return f.failed
}

// lift reads places of a fill until none is left.
func (c *Cache) lift(ctx context.Context, f *fill) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.spareLifts
	if b == nil {
		b = &lift{}
	} else {
		c.spareLifts = b.next
	}
	f.active++
	for !f.over && f.failed == nil && f.nextSpan < len(f.claim.spans) {
		s := f.claim.spans[f.nextSpan]
		n := int(s.last - s.first + 1)
		units := f.units[f.nextUnit : f.nextUnit+n]
		f.nextSpan, f.nextUnit = f.nextSpan+1, f.nextUnit+n
		id, size := f.obj.id, f.obj.unit()
		c.mu.Unlock()
		c.fills.Add(1)
		err := b.read(ctx, c.backing, id, size, s.first, units)
		c.mu.Lock()
		if err != nil && f.failed == nil {
			f.failed = err
		}
	}
	if f.active--; f.active == 0 {
		f.rest.wake()
	}
	clear(b.bufs)
	b.bufs = b.bufs[:0]
	b.next, c.spareLifts = c.spareLifts, b
}

// lift is what one read of the backing needs.
type lift struct {
	bufs [][]byte
	sums []uint32
	next *lift // in Cache.spareLifts
}

func (b *lift) read(ctx context.Context, backing Backing, id Key, size, first int64,
	units []*unit) error {
	per := int(size / blockBytes)
	n := len(units) * per
	b.bufs, b.sums = b.bufs[:0], slices.Grow(b.sums[:0], n)[:n]
	var g gather
	for _, u := range units {
		b.bufs = g.bytes(b.bufs, u.blk, 0, int(size))
	}
	if err := backing.ReadSums(ctx, id, b.bufs, first*size, b.sums); err != nil {
		return err
	}
	for i, u := range units {
		copy(u.blk.sums(), b.sums[i*per:(i+1)*per])
	}
	return nil
}
