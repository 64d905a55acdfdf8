package unifier

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Loan is a range of an object, lent to a reader. Its bytes do not change until Release,
// whatever is written meanwhile. A loan is used by one goroutine at a time.
type Loan struct {
	c     *Cache
	units []*unit
	sges  []fabric.Sge
	own   *fill   // started by this loan, nil if all was there
	join  []*fill // of others, that this loan waits for
	live  bool
	next  *Loan // in Cache.loans
}

// Sges are the pieces of memory that hold the range, in order. They belong to the cache; the
// slice is valid until Release.
func (l *Loan) Sges() []fabric.Sge { return l.sges }

// Release gives the range back. The loan must not be used afterwards.
func (l *Loan) Release() {
	invariant.Check(l.live, "unifier.Loan released twice")
	l.c.unlend(l)
}

// Read lends length bytes at off of the object. What is missing is read from the backing:
// adjacent units in one read, and a unit that somebody else is fetching is waited for, not
// read twice. What was never written reads as zeroes. It waits while more than ReadShare is
// lent. A range that touches more units than that is refused with errs.TooBig.
func (c *Cache) Read(ctx context.Context, id Key, off, length int64) (*Loan, error) {
	const op = "unifier.Read"
	if err := checkRange(op, off, length); err != nil {
		return nil, err
	}
	first, count := off/c.unit, int64(0)
	if length > 0 {
		count = (off+length-1)/c.unit - first + 1
	}
	if count > c.reads.Total() {
		return nil, errs.Newf(errs.TooBig, op, id.String(),
			"%d bytes touch %d units, at most %d can be lent", length, count, c.reads.Total())
	}
	if err := c.reads.Acquire(ctx, count); err != nil {
		return nil, errs.Wrap(op, id.String(), err)
	}
	for {
		l, err := c.lend(id, off, length, first, count)
		if err != nil {
			c.reads.Release(count)
			return nil, err
		}
		again, err := c.complete(ctx, l)
		if again {
			c.unpinAll(l)
			continue
		}
		if err != nil {
			c.unlend(l)
			return nil, errs.Wrap(op, id.String(), err)
		}
		l.cover(off, length)
		return l, nil
	}
}

// lend pins what is there and starts the fill of what is not.
func (c *Cache) lend(id Key, off, length, first, count int64) (*Loan, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errs.New(errs.Closed, "unifier.Read", id.String(), nil)
	}
	l := c.newLoanLocked()
	if count == 0 {
		return l, nil
	}
	o := c.objectLocked(id)
	for index := first; index < first+count; index++ {
		u := o.units[index]
		switch {
		case u == nil:
			c.stats.Misses++
			u = c.startLocked(o, index, l)
		case u.fill != nil:
			c.stats.Misses++
			c.pinLocked(u)
			if u.fill != l.own && (len(l.join) == 0 || l.join[len(l.join)-1] != u.fill) {
				l.join = append(l.join, u.fill)
			}
		default:
			c.stats.Hits++
			c.pinLocked(u)
		}
		base := index * c.unit
		c.policy.touch(u, max(off-base, 0), min(off+length-base, c.unit))
		l.units = append(l.units, u)
	}
	return l, nil
}

func (c *Cache) newLoanLocked() *Loan {
	l := c.loans
	if l == nil {
		l = &Loan{c: c}
	} else {
		c.loans = l.next
	}
	l.live, l.next = true, nil
	return l
}

// complete waits until all units of the loan hold their bytes. again is true when another
// reader, whose fill this one has waited for, gave up.
func (c *Cache) complete(ctx context.Context, l *Loan) (again bool, err error) {
	if l.own != nil {
		if err := c.run(ctx, l.own); err != nil {
			return false, err
		}
	}
	for _, f := range l.join {
		select {
		case <-f.done:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		switch errs.KindOf(f.err) {
		case errs.OK:
		case errs.Canceled, errs.TimedOut:
			return true, nil
		default:
			return false, f.err
		}
	}
	return false, nil
}

// cover lists the memory of the range.
func (l *Loan) cover(off, length int64) {
	unit := l.c.unit
	for _, u := range l.units {
		lo := off % unit
		n := min(unit-lo, length)
		l.sges = append(l.sges, u.buf.Sge(int(lo), int(n)))
		off += n
		length -= n
	}
}

// unlend gives back what a loan holds, and the loan itself.
func (c *Cache) unlend(l *Loan) {
	count := int64(len(l.units))
	c.unpinAll(l)
	c.reads.Release(count)
}

// unpinAll gives back the units of a loan and the loan, but not its share of the memory.
func (c *Cache) unpinAll(l *Loan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, u := range l.units {
		c.unpinLocked(u)
		l.units[i] = nil
	}
	clear(l.sges)
	clear(l.join)
	l.units, l.sges, l.join = l.units[:0], l.sges[:0], l.join[:0]
	l.own, l.live = nil, false
	l.next, c.loans = c.loans, l
}
