package index

import (
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// Object is what the cache knows of one object: its units, who is at work on it, and who reads it.
// It exists while it has units or somebody is at work on it. Guarded by the index's lock.
type Object struct {
	id      Key
	seed    uint64 // of its units' places in the table
	shift   uint8  // of its unit
	units   list.List[Unit]
	count   int
	locks   rangeLocks
	losses  uint64 // counts Lose
	busy    int    // how often it was opened, and not closed
	streams streams
}

// ID is the object's name.
func (o *Object) ID() Key { return o.id }

// Shift is the class of the object's units. It does not change while the object is open.
func (o *Object) Shift() uint8 { return o.shift }

// UnitBytes is the size of its units.
func (o *Object) UnitBytes() int64 { return 1 << o.shift }

// Unit is one version of one unit of an object. A publication makes a new version and never
// changes one that is lent. Guarded by the index's lock, except for the bytes of the block.
type Unit struct {
	obj     *Object
	index   int64
	block   memory.Block
	pins    int32           // loans, fills and pending writes that hold the unit
	indexed bool            // in the table: the current version
	fill    *Fill           // while the bytes are on their way from the backing
	watch   chan<- struct{} // of a writer that waits for the readers to let go

	policy Policy
	place  uint8 // which list it belongs to, see policy
	was    bool  // protected once
	ahead  bool  // read ahead, and nobody has asked for it yet
	seen   int64 // end of what was read so far, see policy

	rank     list.Link[Unit] // in a list of the policy while indexed and not pinned
	inObject list.Link[Unit] // in Object.units while indexed
	chain    *Unit           // in a bucket of the table
}

// Block is the unit's memory.
func (u *Unit) Block() memory.Block { return u.block }

// Fill brings missing units of one object from the backing. Whoever started it runs it (Prepare,
// LockRange, read, FinishFill); others wait in its line. It is used again when the last of them has
// left.
type Fill struct {
	obj    *Object
	Units  []*Unit // ascending after Prepare; held by whoever started the fill
	Lock   RangeLock
	over   bool
	err    error // valid when over
	joined memory.Line
	refs   int // whoever started it, and those who joined
}
