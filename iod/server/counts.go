package server

import (
	"sync/atomic"

	"github.com/sluice-storage/sluice/iod"
)

const opEnd = int(iod.OpReserve) + 1

var opNames = [opEnd]string{"", "read", "write", "sync", "punch", "map", "stat", "truncate",
	"remove", "fence", "status", "list", "reserve"}

// counters are shown by Status.
type counters struct {
	requests     [opEnd]atomic.Uint64
	errors       atomic.Uint64
	running      atomic.Int64
	refused      refusals
	readBytes    atomic.Uint64
	writeBytes   atomic.Uint64
	directReads  atomic.Uint64 // bytes that went past the cache
	directWrites atomic.Uint64
	repeats      atomic.Uint64 // repeated changes, carried out before
	corrupt      atomic.Uint64 // writes that arrived with other checksums than they were sent with
	busySlots    atomic.Uint64 // numbered requests whose predecessor was still running

	policies [iod.Policies]atomic.Uint64 // reads and writes, by their hint to the cache
}

func (c *counters) begin(op iod.Op) {
	if int(op) < opEnd {
		c.requests[op].Add(1)
	}
	c.running.Add(1)
}

func (c *counters) end(err error) {
	c.running.Add(-1)
	if err != nil {
		c.errors.Add(1)
	}
}

// Counts returns the server's counters in a fixed order.
func (s *Server) Counts() []iod.Count {
	out := make([]iod.Count, 0, 128)
	add := func(name string, v uint64) { out = append(out, iod.Count{Name: name, Value: v}) }
	for op := 1; op < opEnd; op++ {
		add("requests_"+opNames[op], s.count.requests[op].Load())
	}
	add("requests_running", uint64(s.count.running.Load()))
	add("errors", s.count.errors.Load())
	add("capabilities_forged", s.count.refused.forged.Load())
	add("capabilities_other_key", s.count.refused.otherKey.Load())
	add("capabilities_refused", s.count.refused.total())
	for why, name := range refusalNames {
		if name != "" {
			add(name, s.count.refused.why[why].Load())
		}
	}
	add("read_bytes", s.count.readBytes.Load())
	add("write_bytes", s.count.writeBytes.Load())
	add("direct_read_bytes", s.count.directReads.Load())
	add("direct_write_bytes", s.count.directWrites.Load())
	add("repeated", s.count.repeats.Load())
	add("corrupt_writes", s.count.corrupt.Load())
	add("busy_slots", s.count.busySlots.Load())
	for i, name := range iod.PolicyNames() {
		add("policy_"+name, s.count.policies[i].Load())
	}
	s.countGates(add)
	s.countCache(add)
	for _, x := range s.States() {
		if x.Op == "read" || x.Op == "write" || x.Op == "sync" {
			add("us_"+x.Op+"_"+x.State, uint64(x.Sum.Microseconds()))
		}
	}
	if s.cfg.More != nil {
		out = append(out, s.cfg.More()...)
	}
	return out
}

func (s *Server) countCache(add func(string, uint64)) {
	cs := s.cfg.Cache.Stats()
	add("cache_hits", cs.Hits)
	add("cache_misses", cs.Misses)
	add("cache_evictions", cs.Evictions)
	add("cache_bytes", uint64(cs.Bytes))
	add("cache_bytes_high", uint64(cs.HighWater))
	add("cache_kept_bytes", uint64(cs.Kept))
}

// countGates adds the use of the gates: memory lent to reads and to direct transfers, memory of
// writes, and waiting requests.
func (s *Server) countGates(add func(string, uint64)) {
	var lent, high, waits uint64
	for i, g := range s.manage.gates() {
		u := g.Usage()
		if g == s.manage.hits || g == s.manage.misses || g == s.manage.direct {
			lent += uint64(u.Bytes)
			high += uint64(u.High)
			waits += u.Waits
		}
		name := gateNames[i]
		add(name+"_running", uint64(u.Count))
		add(name+"_waiting", uint64(u.Waiting))
		add(name+"_bytes", uint64(u.Bytes))
		add(name+"_passed", u.Passed)
		add(name+"_waits", u.Waits)
		add(name+"_aged", u.Aged)
		add(name+"_refused", u.Refused)
	}
	add("lent_bytes", lent)
	add("lent_bytes_high", high)
	add("lent_waits", waits)
}

var gateNames = [gateCount]string{
	"gate_hits", "gate_misses", "gate_writes", "gate_direct", "gate_disk"}
