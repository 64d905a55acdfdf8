package unifier

// defects are faults that tests plant to show that they would be found.
type defects struct {
	lendUnpinned bool // a loan does not hold its units
	skipVerify   bool // wrong sums are taken for right ones
	skipSettle   bool // a fill reads the backing although it lacks pending writes
	dropStamps   bool // merged writes remember the first request only
	keepChanged  bool // what was cached of a changed range stays
	evictDirty   bool // pending whole units can be evicted, and their memory used again
	keepSums     bool // a merge leaves the sums of the blocks that it touched
	anyOrder     bool // the youngest pending write of an object goes first
	loseSlots    bool // a slot's later request reaches the backing before its earlier one
}
