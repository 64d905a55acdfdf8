package unifier

import (
	"context"
	"math"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// queueMax is how long the first one in the queue for memory may have waited before new loans wait
// for him, see need.go.
const queueMax = 5 * time.Millisecond

// triesMax is how often a loan asks for the memory that it lacked when it looked last, before it
// asks for all that it could lack: units that were there can be gone when the memory has come.
const triesMax = 2

// lendLocked pins what is there of the access and starts the fill of what is not. It may let go of
// the lock and wait, but holds nothing meanwhile.
func (c *Cache) lendLocked(ctx context.Context, l *Loan) error {
	defer c.admitMoreLocked()
	if err := c.passLocked(ctx, l); err != nil {
		return err
	}
	for {
		if c.closed {
			return errs.New(errs.Closed, "unifier.Read", l.id.String(), nil)
		}
		o := c.objectLocked(l.id, l.hint)
		o.busy++
		missing, fits := c.pinAllLocked(l, o)
		units := len(l.parts)
		if fits && c.supplyLocked(l, o, missing) {
			c.startLocked(l, o)
			o.busy--
			c.noteReadLocked(l, o)
			c.tidyLocked(o)
			return nil
		}
		bytes := int64(units) << o.shift
		c.letGoLocked(l)
		o.busy--
		shift := o.shift
		c.tidyLocked(o)
		if bytes > c.readMax {
			return errs.Newf(errs.TooBig, "unifier.Read", l.id.String(),
				"%d units of %d bytes, at most %d bytes can be lent", units, 1<<shift, c.readMax)
		}
		if !fits {
			if err := c.standAsideLocked(ctx, l); err != nil {
				return err
			}
			continue
		}
		if l.tries++; l.tries > triesMax {
			missing = units
		}
		c.giveLocked(&l.need)
		l.need.shift, l.need.count = shift, missing
		if err := c.obtainLocked(ctx, &l.need); err != nil {
			return err
		}
	}
}

// tryLendLocked is lendLocked that does not wait: it leaves nothing behind when it says no.
func (c *Cache) tryLendLocked(l *Loan) bool {
	if !c.gate.Empty() || c.blockedLocked() {
		return false
	}
	return c.beginLocked(l, c.objectLocked(l.id, l.hint), false)
}

// beginLocked pins what the access names and starts the loan, or lets go of everything when that
// takes more than there is: more memory, or, where only what is cached is wanted, the disk.
func (c *Cache) beginLocked(l *Loan, o *object, cached bool) bool {
	o.busy++
	missing, ok := c.pinAllLocked(l, o)
	if cached {
		ok = ok && missing == 0 && !l.filling()
	} else {
		ok = ok && c.supplyLocked(l, o, missing)
	}
	if ok {
		c.startLocked(l, o)
		c.noteReadLocked(l, o)
	} else {
		c.letGoLocked(l)
	}
	o.busy--
	c.tidyLocked(o)
	return ok
}

// supplyLocked gets the memory that is missing without waiting, if the loan does not have it.
func (c *Cache) supplyLocked(l *Loan, o *object, missing int) bool {
	if missing == 0 || l.need.shift == o.shift && missing <= len(l.need.got) {
		return true
	}
	c.giveLocked(&l.need)
	l.need.shift, l.need.count = o.shift, missing
	return c.tryObtainLocked(&l.need)
}

// blockedLocked tells whether new loans have to wait for the queue.
func (c *Cache) blockedLocked() bool {
	return !c.queue.Empty() && c.now().Sub(c.queueSince) > queueMax
}

// admitMoreLocked lets the next one at the gate try, because the one before him has.
func (c *Cache) admitMoreLocked() {
	if int64(c.pinnedSlabs) < c.readMax>>slabShift && !c.blockedLocked() {
		c.admitLocked()
	}
}

// passLocked lets a loan in behind those that wait at the gate.
func (c *Cache) passLocked(ctx context.Context, l *Loan) error {
	if c.gate.Empty() && !c.blockedLocked() {
		return nil
	}
	c.stats.Waits++
	l.wait.arm()
	c.gate.push(&l.wait)
	return c.standLocked(ctx, &c.gate, &l.wait)
}

// standAsideLocked waits at the gate until something was given back.
func (c *Cache) standAsideLocked(ctx context.Context, l *Loan) error {
	c.stats.Waits++
	l.wait.arm()
	c.gate.PushFirst(&l.wait.place, &l.wait)
	return c.standLocked(ctx, &c.gate, &l.wait)
}

// pinAllLocked holds all units of the access that are there and counts the others. fits is false
// when more would be lent than loans may have, unless nothing else is held: one loan is always
// possible.
func (c *Cache) pinAllLocked(l *Loan, o *object) (missing int, fits bool) {
	before := c.pinnedSlabs
	unit := o.unit()
	for cur := l.access.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			break
		}
		for off := p.Off; off < p.End(); {
			index := off >> o.shift
			lo := off - index<<o.shift
			n := min(unit-lo, p.End()-off)
			u := c.findLocked(o, index)
			if u == nil {
				missing++
			} else {
				c.pinLocked(u)
			}
			l.parts = append(l.parts, lent{u, index, lo, n})
			off += n
		}
	}
	most := (c.readMax + c.cfg.DirtyBytes) >> slabShift // pending writes hold units too
	now := int64(c.pinnedSlabs) + (int64(missing)<<o.shift+slabBytes-1)>>slabShift
	return missing, now <= most || before == 0 && int64(len(l.parts))<<o.shift <= c.readMax
}

// startLocked enters the missing units with the memory that the loan has, starts their fill, and
// joins the fills of others.
func (c *Cache) startLocked(l *Loan, o *object) {
	used := 0
	for i := range l.parts {
		p := &l.parts[i]
		hit := p.u != nil
		if !hit {
			if p.u = c.findLocked(o, p.index); p.u != nil {
				c.pinLocked(p.u) // the access has the unit twice
			} else {
				c.policy.raise(o, p.index)
				p.u = c.enterLocked(l, o, p.index, l.need.got[used])
				used++
			}
		}
		if f := p.u.fill; f != nil && f != l.own {
			if n := len(l.join); n == 0 || l.join[n-1] != f {
				f.refs++
				l.join = append(l.join, f)
			}
			hit = false
		}
		if hit {
			c.stats.Hits++
		} else {
			c.stats.Misses++
		}
		c.policy.touch(p.u, p.lo, p.lo+p.n, l.hint.Policy)
	}
	rest := l.need.got[used:]
	for _, b := range rest {
		c.memory.give(b)
	}
	l.need.got = l.need.got[:0]
	if len(rest) > 0 {
		c.feedLocked()
	}
}

// enterLocked puts a unit without bytes into the index and notes it in the loan's fill.
func (c *Cache) enterLocked(l *Loan, o *object, index int64, b block) *unit {
	if l.own == nil {
		l.own = c.newFillLocked(o)
	}
	u := c.addLocked(o, index, b, l.hint.Policy)
	l.own.add(u)
	return u
}
