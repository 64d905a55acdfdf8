package nbd

import "sync/atomic"

// Stats is a snapshot of what a server did since it was made.
type Stats struct {
	Conns    int   // connected now
	Accepted int64 // connections ever
	Refused  int64 // closed on arrival because of MaxConns
	Evicted  int64 // closed because they stalled while others waited for memory
	Panics   int64 // connections lost to a panic

	Counts

	MemoryBytes int64 // payload buffers in use now
	MemoryPeak  int64 // and at most
	MemoryWaits int64 // how often a connection waited for memory
}

// Counts are those of requests.
type Counts struct {
	Reads, Writes, Flushes, Trims, Zeroes, Caches, Statuses int64 // requests
	Errors                                                  int64 // requests answered by an error
	BytesRead, BytesWritten                                 int64 // payload of reads and writes

	ReadTimes, WriteTimes Times // of some of them
}

// ExportStats is a snapshot of what was done with one export since its entry was made.
type ExportStats struct {
	Name  string
	Conns int  // that use it now
	Open  bool // it is open
	Counts
}

// counters is one connection's share of Stats, so that connections do not fight for a cache line.
type counters struct {
	commands [cmdCount]atomic.Int64
	errors   atomic.Int64
	bytesOut atomic.Int64
	bytesIn  atomic.Int64

	reads, writes times
}

// addTo adds the connection's counters to those of the server.
func (c *counters) addTo(total *counters) {
	for i := range c.commands {
		total.commands[i].Add(c.commands[i].Load())
	}
	total.errors.Add(c.errors.Load())
	total.bytesOut.Add(c.bytesOut.Load())
	total.bytesIn.Add(c.bytesIn.Load())
	c.reads.addTo(&total.reads)
	c.writes.addTo(&total.writes)
}

// Stats adds up the counters of all connections, past and present.
func (s *Server) Stats() Stats {
	var sum counters
	s.mu.Lock()
	s.gone.addTo(&sum)
	for c := range s.conns {
		c.count.addTo(&sum)
	}
	out := Stats{Conns: len(s.conns), Accepted: s.accepted, Refused: s.refused}
	s.mu.Unlock()
	out.Evicted, out.Panics = s.evicted.Load(), s.panics.Load()
	out.Counts = sum.counts()
	memory := s.memory.Usage()
	out.MemoryBytes, out.MemoryPeak, out.MemoryWaits = memory.Bytes, memory.High, int64(memory.Waits)
	return out
}

func (c *counters) counts() (out Counts) {
	for cmd, field := range map[uint16]*int64{
		cmdRead: &out.Reads, cmdWrite: &out.Writes, cmdFlush: &out.Flushes, cmdTrim: &out.Trims,
		cmdWriteZeroes: &out.Zeroes, cmdCache: &out.Caches, cmdBlockStatus: &out.Statuses,
	} {
		*field = c.commands[cmd].Load()
	}
	out.Errors = c.errors.Load()
	out.BytesRead, out.BytesWritten = c.bytesOut.Load(), c.bytesIn.Load()
	out.ReadTimes, out.WriteTimes = c.reads.load(), c.writes.load()
	return out
}

// Exports is what was done with each export that is offered, in the order of their entries.
func (s *Server) Exports() []ExportStats {
	var all []ExportStats
	for _, sh := range s.offers.Load().list {
		var sum counters
		sh.mu.Lock()
		one := ExportStats{Name: sh.entry.Name, Conns: len(sh.users), Open: sh.open != nil}
		sh.gone.addTo(&sum)
		for c := range sh.users {
			c.count.addTo(&sum)
		}
		sh.mu.Unlock()
		one.Counts = sum.counts()
		all = append(all, one)
	}
	return all
}
