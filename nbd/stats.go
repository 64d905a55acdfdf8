package nbd

import "sync/atomic"

// Stats is a snapshot of what a server did since it was made.
type Stats struct {
	Conns    int   // connected now
	Accepted int64 // connections ever
	Refused  int64 // closed on arrival because of MaxConns
	Evicted  int64 // closed because they stalled while others waited for memory
	Panics   int64 // connections lost to a panic

	Reads, Writes, Flushes, Trims, Zeroes, Caches, Statuses int64 // requests
	Errors                                                  int64 // requests answered by an error
	BytesRead, BytesWritten                                 int64 // payload of reads and writes

	MemoryBytes int64 // payload buffers in use now
	MemoryPeak  int64 // and at most
	MemoryWaits int64 // how often a connection waited for memory
}

// counters is one connection's share of Stats, so that connections do not fight for a cache line.
type counters struct {
	commands [cmdCount]atomic.Int64
	errors   atomic.Int64
	bytesOut atomic.Int64
	bytesIn  atomic.Int64
}

// addTo adds the connection's counters to those of the server.
func (c *counters) addTo(total *counters) {
	for i := range c.commands {
		total.commands[i].Add(c.commands[i].Load())
	}
	total.errors.Add(c.errors.Load())
	total.bytesOut.Add(c.bytesOut.Load())
	total.bytesIn.Add(c.bytesIn.Load())
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
	for cmd, field := range map[uint16]*int64{
		cmdRead: &out.Reads, cmdWrite: &out.Writes, cmdFlush: &out.Flushes, cmdTrim: &out.Trims,
		cmdWriteZeroes: &out.Zeroes, cmdCache: &out.Caches, cmdBlockStatus: &out.Statuses,
	} {
		*field = sum.commands[cmd].Load()
	}
	out.Errors = sum.errors.Load()
	out.BytesRead, out.BytesWritten = sum.bytesOut.Load(), sum.bytesIn.Load()
	memory := s.memory.Usage()
	out.MemoryBytes, out.MemoryPeak, out.MemoryWaits = memory.Bytes, memory.High, int64(memory.Waits)
	return out
}
