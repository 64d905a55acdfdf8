package remote

import "sync/atomic"

// counts are incremented on the data path.
type counts struct {
	resent, superseded, lost, restarts, forced, waits, readSums, writeSums atomic.Uint64
}

// Stats are the counters of a Remote.
type Stats struct {
	KeptBytes  int64  // memory that kept writes take at present
	KeptWrites int    // acknowledged and not yet synced
	Objects    int    // that they belong to
	Resent     uint64 // writes that were sent again after a server had lost its volatile state
	Superseded uint64 // writes that were not sent again: the file was truncated or removed since
	Lost       uint64 // writes that a server refused to take again
	Restarts   uint64 // changed verifiers
	Forced     uint64 // objects synced because memory or slots were scarce
	Waits      uint64 // writes that had to wait for that
	ReadSums   uint64 // reads that arrived with wrong checksums, and were asked for again
	WriteSums  uint64 // writes that a server found damaged, and that were sent again
}

// Stats returns the counters.
func (r *Remote) Stats() Stats {
	c := &r.counts
	s := Stats{Resent: c.resent.Load(), Superseded: c.superseded.Load(), Lost: c.lost.Load(),
		Restarts: c.restarts.Load(), Forced: c.forced.Load(), Waits: c.waits.Load(),
		ReadSums: c.readSums.Load(), WriteSums: c.writeSums.Load()}
	all := r.servers.Load()
	if all == nil {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.KeptBytes = r.memory.Used()
	for _, srv := range *all {
		s.KeptWrites += srv.acked
		s.Objects += len(srv.objects)
	}
	return s
}
