package server

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/wire"
)

const opEnd = int(iod.OpStatus) + 1

// counters are the numbers that Status shows.
type counters struct {
	requests   [opEnd]atomic.Uint64
	errors     atomic.Uint64
	running    atomic.Int64
	forged     atomic.Uint64
	refused    atomic.Uint64
	readBytes  atomic.Uint64
	writeBytes atomic.Uint64
}

func (c *counters) begin(op iod.Op) func(error) {
	if int(op) < opEnd {
		c.requests[op].Add(1)
	}
	c.running.Add(1)
	return c.end
}

func (c *counters) end(err error) {
	c.running.Add(-1)
	if err != nil {
		c.errors.Add(1)
	}
}

// Counts are the server's numbers in a fixed order.
func (s *Server) Counts() []iod.Count {
	names := [opEnd]string{"", "read", "write", "sync", "punch", "map", "stat", "truncate", "remove",
		"fence", "status"}
	var out []iod.Count
	add := func(name string, v uint64) { out = append(out, iod.Count{Name: name, Value: v}) }
	for op := 1; op < opEnd; op++ {
		add("requests_"+names[op], s.count.requests[op].Load())
	}
	add("requests_running", uint64(s.count.running.Load()))
	add("errors", s.count.errors.Load())
	add("capabilities_forged", s.count.forged.Load())
	add("capabilities_refused", s.count.refused.Load())
	add("read_bytes", s.count.readBytes.Load())
	add("write_bytes", s.count.writeBytes.Load())
	u := s.reads.Usage()
	add("lent_bytes", uint64(u.Used))
	add("lent_bytes_high", uint64(u.High))
	add("lent_waits", u.Waits)
	cs := s.cfg.Cache.Stats()
	add("cache_hits", cs.Hits)
	add("cache_misses", cs.Misses)
	add("cache_evictions", cs.Evictions)
	add("cache_bytes", uint64(cs.Bytes))
	add("cache_bytes_high", uint64(cs.HighWater))
	if s.cfg.More != nil {
		out = append(out, s.cfg.More()...)
	}
	return out
}

// replyPool keeps encoders so that a small reply allocates nothing.
type replyPool struct{ p sync.Pool }

func (r *replyPool) get() *wire.Enc {
	if e, ok := r.p.Get().(*wire.Enc); ok {
		e.B = e.B[:0]
		return e
	}
	return &wire.Enc{B: make([]byte, 0, 64)}
}

func (r *replyPool) put(e *wire.Enc) { r.p.Put(e) }
