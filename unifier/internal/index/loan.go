package index

import (
	"cmp"
	"slices"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// Loan is an access to an object, lent to a reader. Its bytes do not change until Release,
// whatever is written meanwhile. A loan is used by one goroutine at a time.
type Loan struct {
	x       *Index
	id      Key
	access  seg.Access
	hint    Hint
	parts   []lent
	units   int // that it has parts of
	sges    []fabric.Sge
	own     *Fill   // started by this loan, nil if all was there
	joined  []*Fill // of others, that this loan waits for
	request memory.Request
	waiter  memory.Waiter
	tries   int // for memory
	live    bool
}

// lent is what a loan holds of one unit.
type lent struct {
	unit  *Unit
	index int64
	lo, n int64
}

// Sges are the pieces of memory that hold the access, in order. They belong to the cache; the
// slice is valid until Release.
func (l *Loan) Sges() []fabric.Sge { return l.sges }

// Sums appends the CRC-32C of each chunk bytes of the loan's stream to dst; the last may be
// shorter. chunk is a multiple of 4 KiB. The sums are joined from those of the blocks; bytes are
// summed only where pieces do not lie on blocks.
func (l *Loan) Sums(dst []uint32, chunk int64) []uint32 {
	s := memory.NewSummer(dst, chunk)
	for i := range l.parts {
		s.Block(l.parts[i].unit.block, l.parts[i].lo, l.parts[i].n)
	}
	return s.Finish()
}

// Release gives the access back. The loan must not be used afterwards. It takes the index's lock.
func (l *Loan) Release() {
	invariant.Check(l.live, "unifier.Loan released twice")
	l.x.Lock()
	l.x.endLoan(l)
	l.x.Unlock()
}

// Fills are what has to be over before the loan holds its bytes: the one that it has started, which
// the caller runs, and those of others.
func (x *Index) Fills(l *Loan) (own *Fill, joined []*Fill) { return l.own, l.joined }

// Cover lists the memory of a loan that holds its bytes. It needs no lock.
func (x *Index) Cover(l *Loan) {
	var g memory.Gather
	for i := range l.parts {
		p := &l.parts[i]
		l.sges = g.Sge(l.sges, p.unit.block, int(p.lo), int(p.n))
	}
}

func (x *Index) newLoan(id Key, a seg.Access, h Hint) *Loan {
	l := x.freeLoans.Get()
	l.x, l.id, l.access, l.hint = x, id, a, h
	l.live, l.tries = true, 0
	return l
}

// letGo gives back what the loan holds of the cache.
func (x *Index) letGo(l *Loan) {
	for i := range l.parts {
		if u := l.parts[i].unit; u != nil {
			x.Unpin(u)
		}
		l.parts[i].unit = nil
	}
	for i, f := range l.joined {
		x.LeaveFill(f)
		l.joined[i] = nil
	}
	if l.own != nil {
		x.LeaveFill(l.own)
	}
	clear(l.sges)
	l.parts, l.sges, l.joined, l.own = l.parts[:0], l.sges[:0], l.joined[:0], nil
}

// endLoan gives back all that a loan holds, and the loan itself.
func (x *Index) endLoan(l *Loan) {
	x.letGo(l)
	x.Memory.Free(&l.request)
	l.access, l.live = seg.Access{}, false
	x.freeLoans.Put(l)
}

// newFill begins a fill, which keeps the object open until it is over.
func (x *Index) newFill(o *Object) *Fill {
	f := x.freeFills.Get()
	f.obj, f.refs, f.over, f.err = o, 1, false, nil
	f.Lock.Shared = true
	x.use(o)
	return f
}

// enter puts a unit without bytes into the table, held, to be filled.
func (x *Index) enter(f *Fill, index int64, b memory.Block, p Policy) *Unit {
	u := x.add(f.obj, index, b, p)
	u.fill = f
	f.Units = append(f.Units, u)
	return u
}

// Object is the one whose units are missing.
func (f *Fill) Object() *Object { return f.obj }

// Prepare orders the units and says which range is to be locked. It needs no lock.
func (f *Fill) Prepare() {
	slices.SortFunc(f.Units, func(a, b *Unit) int { return cmp.Compare(a.index, b.index) })
	for _, u := range f.Units {
		f.Lock.Add(u.index)
	}
}

// FinishFill ends a fill, whose range is not locked any more, and tells everybody who waits for it.
// A unit that was dropped meanwhile serves those who asked before, and nobody else.
func (x *Index) FinishFill(f *Fill, err error) {
	for _, u := range f.Units {
		u.fill = nil
		if err != nil {
			x.remove(u)
		}
	}
	x.Close(f.obj)
	f.err, f.over = err, true
	f.joined.ReleaseAll(nil)
}

// Err is how a fill that is over has ended. It needs no lock.
func (f *Fill) Err() error { return f.err }

// LeaveFill ends the interest of somebody who started or joined the fill.
func (x *Index) LeaveFill(f *Fill) {
	if f.refs--; f.refs > 0 {
		return
	}
	clear(f.Units)
	f.Lock.Reset()
	f.obj, f.Units = nil, f.Units[:0]
	x.freeFills.Put(f)
}
