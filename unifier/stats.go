package unifier

// Stats describe a cache at one moment. Those that count do so since it was made.
type Stats struct {
	Hits, Misses uint64 // units asked for that were there, or were not
	Fills        uint64 // reads of the backing
	Evictions    uint64 // units that made room
	GhostHits    uint64 // units asked for soon after they were evicted
	Exchanged    uint64 // whole units published without a copy
	Merged       uint64 // units into which a part was merged
	Dropped      uint64 // units that a write or a change took out
	Waits        uint64 // how often somebody waited for memory
	ReaderWaits  uint64 // how often a writer waited for a reader
	MapFailures  uint64 // how often the host had no memory

	Ahead       uint64 // units read ahead
	AheadUsed   uint64 // of which somebody asked for
	AheadWasted uint64 // of which nobody did before they were gone
	AheadWindow int64  // bytes, the largest window that streams get now

	Flushes uint64 // writes of pending data
	Flushed uint64 // requests that were written so
	Losses  uint64 // times that pending writes were lost

	Bytes     int64 // cached now
	Dirty     int64 // pending now: part of them are cached too
	Drafted   int64 // held by drafts now
	Taken     int64 // held by direct transfers now
	HeldSlabs int   // slabs in which units are lent or pending now
	Protected int64 // bytes that a scan does not sweep out
	Objects   int   // of which something is cached or under way
	Ready     int64 // bytes resident and registered from the start
	Mapped    int64 // bytes mapped now
	HighWater int64 // the most that was mapped so far: never above MemoryBytes
}

// Stats tells how the cache is used.
func (c *Cache) Stats() Stats {
	c.index.Lock()
	x, m := c.index.Stats(), c.index.Memory.Stats()
	c.index.Unlock()
	w, t := c.back.Stats(), c.takes.Usage()
	return Stats{
		Hits: x.Hits, Misses: x.Misses, Fills: c.fills.Load(), Evictions: x.Evictions,
		GhostHits: x.GhostHits, Exchanged: x.Exchanged, Merged: x.Merged, Dropped: x.Dropped,
		Waits: m.Waits + w.Waits + t.Waits, ReaderWaits: x.ReaderWaits, MapFailures: m.MapFailures,
		Ahead: x.Ahead, AheadUsed: x.AheadUsed, AheadWasted: x.AheadWasted,
		AheadWindow: x.AheadWindow,
		Flushes:     w.Flushes, Flushed: w.Flushed, Losses: w.Losses,
		Bytes: x.Bytes, Dirty: w.Dirty, Drafted: w.Drafted, Taken: t.Used,
		HeldSlabs: m.HeldSlabs, Protected: x.Protected, Objects: x.Objects,
		Ready: m.Ready, Mapped: m.Mapped, HighWater: m.HighWater,
	}
}
