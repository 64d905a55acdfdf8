package unifier

import "github.com/sluice-storage/sluice/internal/invariant"

// defects are faults that tests plant to show that they would be found.
type defects struct {
	skipSettle  bool // a fill reads the backing although it lacks pending writes
	keepChanged bool // what was cached of a changed range stays
}

// Plant plants a fault of the cache or of one of its parts by its name, before the cache is used.
// It is for tests of those who use a cache and have to find what is wrong with it.
func (c *Cache) Plant(name string) {
	switch name {
	case "skipSettle":
		c.defects.skipSettle = true
	case "keepChanged":
		c.defects.keepChanged = true
	default:
		ok := c.index.Plant(name) || c.back.Plant(name)
		invariant.Check(ok, "unifier.Plant: no such fault")
	}
}
