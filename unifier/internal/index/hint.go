package index

import (
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// Key names what is cached: units of objects.
type Key = stripe.ObjectID

// Policy is how units of an object are kept.
type Policy uint8

// The policies.
const (
	Scan   Policy = iota // what is used again stays, and no scan sweeps it out
	LRU                  // the longest unused goes first
	Stream               // read once, in order: read ahead at once, dropped behind the reader
	Keep                 // evicted last; at most half of the memory is kept so
	None                 // gone when the last loan ends

	Policies // how many there are
)

// Hint tells what a caller knows about an object.
type Hint struct {
	Policy Policy

	// Unit is the cache unit in bytes, a power of two from 4 KiB to 64 KiB. 0: as the object has
	// it, else Config.UnitBytes. One object has one size at a time: another one takes effect when
	// nobody is at work on the object, and what is cached of it is dropped then.
	Unit int
}

// UnitOK tells whether units may have that size.
func UnitOK(n int) bool { return n >= memory.BlockBytes && n <= memory.SlabBytes && n&(n-1) == 0 }

// CheckAccess refuses with errs.Invalid what no request may ask for.
func CheckAccess(op string, id Key, a seg.Access, h Hint) error {
	if h.Policy >= Policies || h.Unit != 0 && !UnitOK(h.Unit) {
		return errs.Newf(errs.Invalid, op, id.String(), "hint %+v", h)
	}
	if err := a.Validate(math.MaxInt64, stripe.MaxObjectBytes); err != nil {
		return errs.Wrap(op, id.String(), err)
	}
	return nil
}
