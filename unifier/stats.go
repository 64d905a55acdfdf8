package unifier

import (
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
	"github.com/sluice-storage/sluice/unifier/internal/writeback"
)

// What the parts tell.
type (
	memoryStats = memory.Stats
	indexStats  = index.Stats
	writeStats  = writeback.Stats
)

// Stats describe a cache at one moment. Those that count do so since it was made.
type Stats struct {
	memoryStats
	indexStats
	writeStats

	Fills uint64 // reads of the backing
	Waits uint64 // how often somebody waited for memory, or for his share of it
	Taken int64  // bytes held by direct transfers now
}

// Stats tells how the cache is used.
func (c *Cache) Stats() Stats {
	c.index.Lock()
	s := Stats{memoryStats: c.index.Memory.Stats(), indexStats: c.index.Stats()}
	c.index.Unlock()
	s.writeStats = c.back.Stats()
	taken := c.takes.Usage()
	s.Fills, s.Taken = c.fills.Load(), taken.Bytes
	s.Waits = s.memoryStats.Waits + s.writeStats.Waits + taken.Waits
	return s
}
