package capi

import (
	"sync"
	"sync/atomic"
	"syscall"
)

// Handle is what a program has of an object: a number that looks like a pointer and is none.
//
//	| kind 4 bits | generation 36 bits | place 24 bits |
//
// The generation of a place grows with each object that is put there, so that a handle which was
// closed is not the next one's. It is never 0.
type Handle uintptr

type kind uint8

const (
	kindConn kind = iota + 1
	kindFile
	kindDir
	kindQueue
	kindArray
)

func (k kind) String() string {
	return [...]string{"object", "connection", "file", "directory", "queue", "array"}[k]
}

const (
	placeBits  = 24
	placesMax  = 1 << placeBits
	genBits    = 36
	genMax     = 1<<genBits - 1
	kindShift  = placeBits + genBits
	placeMask  = placesMax - 1
	tableStart = 64 // places that the table begins with
)

func makeHandle(k kind, gen uint64, place int) Handle {
	return Handle(uint64(k)<<kindShift | gen<<placeBits | uint64(place))
}

// object is what lies in a place. It does not change.
type object struct {
	handle Handle
	value  any
}

// table finds objects by their handles, without a lock.
type table struct {
	places atomic.Pointer[[]*place]

	mu   sync.Mutex
	free []int
}

type place struct {
	gen    uint64 // guarded by table.mu
	object atomic.Pointer[object]
}

// add gives an object a handle.
func (t *table) add(k kind, value any) (Handle, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 && !t.growLocked() {
		return 0, fail(syscall.EMFILE, "%d handles are open", placesMax)
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	p := (*t.places.Load())[i]
	if p.gen++; p.gen > genMax {
		p.gen = 1
	}
	h := makeHandle(k, p.gen, i)
	p.object.Store(&object{h, value})
	return h, nil
}

// growLocked doubles the table. Readers have either the old or the new one, with the same places.
func (t *table) growLocked() bool {
	var old []*place
	if all := t.places.Load(); all != nil {
		old = *all
	}
	n := min(max(2*len(old), tableStart), placesMax)
	if n == len(old) {
		return false
	}
	all := make([]*place, n)
	copy(all, old)
	for i := len(old); i < n; i++ {
		all[i] = &place{}
		t.free = append(t.free, i)
	}
	t.places.Store(&all)
	return true
}

// find is the object of a handle; nil: it has none, or none any more.
func (t *table) find(h Handle) *object {
	all := t.places.Load()
	i := int(h & placeMask)
	if all == nil || i >= len(*all) {
		return nil
	}
	o := (*all)[i].object.Load()
	if o == nil || o.handle != h {
		return nil
	}
	return o
}

// remove takes an object away, for the one caller that gets it.
func (t *table) remove(h Handle) *object {
	o := t.find(h)
	if o == nil {
		return nil
	}
	i := int(h & placeMask)
	if !(*t.places.Load())[i].object.CompareAndSwap(o, nil) {
		return nil
	}
	t.mu.Lock()
	t.free = append(t.free, i)
	t.mu.Unlock()
	return o
}

// get is the object of a handle, which must be of the type that is asked for.
func get[T any](t *table, k kind, h Handle) (v T, err error) {
	if o := t.find(h); o != nil {
		if v, ok := o.value.(T); ok {
			return v, nil
		}
	}
	return v, badHandle(k, h)
}

// take is get that removes it.
func take[T any](t *table, k kind, h Handle) (v T, err error) {
	if v, err = get[T](t, k, h); err == nil && t.remove(h) == nil {
		err = badHandle(k, h)
	}
	return v, err
}

func badHandle(k kind, h Handle) error {
	if h == 0 {
		return fail(syscall.EBADF, "a null pointer for a %s", k)
	}
	is := kind(uint64(h) >> kindShift)
	if is >= kindConn && is <= kindQueue && is != k {
		return fail(syscall.EBADF, "a %s where a %s is wanted", is, k)
	}
	return fail(syscall.EBADF, "%#x is no open %s: it was closed, or never was one", uintptr(h), k)
}

// removeIf removes the objects that fn wants to be removed, and returns them.
func (t *table) removeIf(fn func(value any) bool) (removed []any) {
	all := t.places.Load()
	if all == nil {
		return nil
	}
	for _, p := range *all {
		o := p.object.Load()
		if o != nil && fn(o.value) && t.remove(o.handle) != nil {
			removed = append(removed, o.value)
		}
	}
	return removed
}
