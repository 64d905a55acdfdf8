package index

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// triesMax is how often a loan asks for the memory that it lacked when it looked last, before it
// asks for all that it could lack: units that were there can be gone when the memory has come.
const triesMax = 2

// Lend holds what is there of the access and starts the fill of what is not: see Fills. It may let
// go of the lock and wait for memory, or while too much is lent, but holds nothing meanwhile. An
// access that touches more units than can be lent at once is refused with errs.TooBig.
func (x *Index) Lend(ctx context.Context, id Key, a seg.Access, h Hint) (*Loan, error) {
	l := x.newLoan(id, a, h)
	if err := x.lend(ctx, l); err != nil {
		x.endLoan(l)
		return nil, err
	}
	return l, nil
}

// LendAgain lets go of all that the loan holds and begins anew, because a fill that it has joined
// has failed. After a failure the loan holds nothing, and is still to be released.
func (x *Index) LendAgain(ctx context.Context, l *Loan) error {
	x.letGo(l)
	return x.lend(ctx, l)
}

// LendCached is Lend of what the cache holds already: nil, and nothing has happened, when something
// is missing or still being read, or when readers have to wait for memory.
func (x *Index) LendCached(id Key, a seg.Access, h Hint) *Loan {
	o := x.objects[id]
	if o == nil || h.Unit != 0 && o.UnitBytes() != int64(h.Unit) || x.closed || !x.Memory.Open() {
		return nil
	}
	l := x.newLoan(id, a, h)
	x.use(o)
	missing, fits := x.pinAll(l, o)
	if fits && missing == 0 && !l.filling() {
		x.start(l, o)
		x.noteRead(l, o)
		x.Close(o)
		return l
	}
	x.endLoan(l)
	x.Close(o)
	return nil
}

// filling tells whether somebody is still reading what the loan holds.
func (l *Loan) filling() bool {
	for i := range l.parts {
		if l.parts[i].unit.fill != nil {
			return true
		}
	}
	return false
}

// WaitFill waits until a fill of somebody else, which the loan has joined, is over. It lets go of
// the lock meanwhile.
func (x *Index) WaitFill(ctx context.Context, f *Fill, l *Loan) error {
	if f.over {
		return nil
	}
	f.joined.Push(&l.waiter)
	return f.joined.Wait(ctx, x, &l.waiter)
}

func (x *Index) lend(ctx context.Context, l *Loan) error {
	const op = "unifier.Read"
	defer x.Memory.AdmitMore()
	if err := x.Memory.Pass(ctx, &l.waiter); err != nil {
		return err
	}
	for {
		if err := x.Closed(op, l.id); err != nil {
			return err
		}
		o := x.Open(l.id, l.hint)
		missing, fits := x.pinAll(l, o)
		if fits && x.supply(l, o, missing) {
			x.start(l, o)
			x.noteRead(l, o)
			x.Close(o)
			return nil
		}
		units, shift := l.units, o.shift
		x.letGo(l)
		x.Close(o)
		if bytes := int64(units) << shift; bytes > x.cfg.LoanMax {
			return errs.Newf(errs.TooBig, op, l.id.String(),
				"%d units of %d bytes, at most %d bytes can be lent", units, 1<<shift, x.cfg.LoanMax)
		}
		if !fits {
			if err := x.Memory.StandAside(ctx, &l.waiter); err != nil {
				return err
			}
			continue
		}
		if l.tries++; l.tries > triesMax {
			missing = units
		}
		x.Memory.Free(&l.request)
		l.request.Ask(shift, missing)
		if err := x.Memory.Allocate(ctx, &l.request); err != nil {
			return err
		}
	}
}

// supply gets the memory that is missing without waiting, if the loan does not have it.
func (x *Index) supply(l *Loan, o *Object, missing int) bool {
	r := &l.request
	if missing == 0 || r.Shift == o.shift && missing <= len(r.Got) {
		return true
	}
	x.Memory.Free(r)
	r.Ask(o.shift, missing)
	return x.Memory.TryAllocate(r, false)
}

// pinAll holds all units of the access that are there and counts the others; many small pieces of
// one unit, in order, are one unit. fits is false when more would be lent than loans may have,
// unless nothing else is held: one loan is always possible.
func (x *Index) pinAll(l *Loan, o *Object) (missing int, fits bool) {
	before := x.Memory.HeldSlabs()
	unit, last := o.UnitBytes(), int64(-1)
	l.units = 0
	for cur := l.access.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			break
		}
		for off := p.Off; off < p.End(); {
			index := off >> o.shift
			lo := off - index<<o.shift
			n := min(unit-lo, p.End()-off)
			u := x.find(o, index)
			if u != nil {
				x.pin(u)
			}
			if index != last {
				l.units++
				if u == nil {
					missing++
				}
			}
			last = index
			l.parts = append(l.parts, lent{u, index, lo, n})
			off += n
		}
	}
	most := (x.cfg.LoanMax + x.cfg.DirtyMax) >> memory.SlabShift // pending writes hold units too
	now := int64(x.Memory.HeldSlabs()) +
		(int64(missing)<<o.shift+memory.SlabBytes-1)>>memory.SlabShift
	return missing, now <= most || before == 0 && int64(l.units)<<o.shift <= x.cfg.LoanMax
}

// start enters the missing units with the memory that the loan has, starts their fill, and joins
// the fills of others.
func (x *Index) start(l *Loan, o *Object) {
	used := 0
	for i := range l.parts {
		p := &l.parts[i]
		hit := p.unit != nil
		if !hit {
			if p.unit = x.find(o, p.index); p.unit != nil {
				x.pin(p.unit) // the access has the unit twice
			} else {
				x.policy.hitGhost(o, p.index)
				if l.own == nil {
					l.own = x.newFill(o)
				}
				p.unit = x.enter(l.own, p.index, l.request.Got[used], l.hint.Policy)
				used++
			}
		}
		if f := p.unit.fill; f != nil && f != l.own {
			if n := len(l.joined); n == 0 || l.joined[n-1] != f {
				f.refs++
				l.joined = append(l.joined, f)
			}
			hit = false
		}
		if hit {
			x.stats.Hits++
		} else {
			x.stats.Misses++
		}
		x.policy.touch(p.unit, p.lo, p.lo+p.n, l.hint.Policy)
	}
	for _, b := range l.request.Got[used:] {
		x.Memory.FreeBlock(b)
	}
	l.request.Got = l.request.Got[:0]
}
