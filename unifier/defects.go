package unifier

import "github.com/sluice-storage/sluice/internal/invariant"

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

// Plant plants a fault by its name, before the cache is used. It is for tests of those who use a
// cache and have to find what is wrong with it.
func (c *Cache) Plant(name string) {
	d := &c.defects
	fault, ok := map[string]*bool{
		"lendUnpinned": &d.lendUnpinned, "skipVerify": &d.skipVerify, "skipSettle": &d.skipSettle,
		"dropStamps": &d.dropStamps, "keepChanged": &d.keepChanged, "evictDirty": &d.evictDirty,
		"keepSums": &d.keepSums, "anyOrder": &d.anyOrder, "loseSlots": &d.loseSlots,
	}[name]
	invariant.Check(ok, "unifier.Plant: no such fault")
	*fault = true
}
