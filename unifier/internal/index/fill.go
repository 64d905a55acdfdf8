package index

import (
	"cmp"
	"slices"

	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// newFill begins a fill, which keeps the object open until it is over.
func (x *Index) newFill(o *Object) *Fill {
	f := x.freeFills.Get()
	f.obj, f.refs, f.over, f.err = o, 1, false, nil
	f.Lock.Shared = true
	o.busy++
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

// Err is how the fill has ended.
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
