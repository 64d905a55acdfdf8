package unifier

// Policy is how units of an object are kept.
type Policy uint8

// The policies.
const (
	Scan   Policy = iota // what is used again stays, and no scan sweeps it out
	LRU                  // the longest unused goes first
	Stream               // read once, in order: read ahead at once, dropped behind the reader
	Keep                 // evicted last; at most half of the memory is kept so
	None                 // gone when the last loan ends

	policies
)

// Hint tells what a caller knows about an object.
type Hint struct {
	Policy Policy

	// Unit is the cache unit in bytes, a power of two from 4 KiB to 64 KiB. 0: as the object has
	// it, else Config.UnitBytes. One object has one size at a time: another one takes effect when
	// nobody is at work on the object, and what is cached of it is dropped then.
	Unit int
}

func unitOK(n int) bool { return n >= blockBytes && n <= slabBytes && n&(n-1) == 0 }

func (h Hint) ok() bool { return h.Policy < policies && (h.Unit == 0 || unitOK(h.Unit)) }
