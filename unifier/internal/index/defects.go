package index

// defects are faults that tests plant to show that they would be found.
type defects struct {
	lendUnpinned bool // a loan does not hold its units
	evictDirty   bool // pending whole units can be evicted, and their memory used again
	keepSums     bool // a merge leaves the sums of the blocks that it touched
}

// plant plants a fault by its name. It tells whether there is such a one.
func (d *defects) plant(name string) bool {
	fault, ok := map[string]*bool{
		"lendUnpinned": &d.lendUnpinned, "evictDirty": &d.evictDirty, "keepSums": &d.keepSums,
	}[name]
	if ok {
		*fault = true
	}
	return ok
}
