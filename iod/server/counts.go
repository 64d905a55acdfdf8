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
	refused    refusals
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
	add("capabilities_forged", s.count.refused.forged.Load())
	add("capabilities_refused", s.count.refused.total())
	for why, name := range refusalNames {
		if name != "" {
			add(name, s.count.refused.why[why].Load())
		}
	}
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

// work is what one request needs besides its data; kept for the next one.
type work struct {
	req   iod.Request
	reply wire.Enc
	sums  []uint32 // of a read's data
}

// workPool keeps works, so that a request allocates nothing.
type workPool struct{ p sync.Pool }

func (p *workPool) get() *work {
	w, ok := p.p.Get().(*work)
	if !ok {
		w = &work{reply: wire.Enc{B: make([]byte, 0, 64)}}
	}
	w.reply.B = w.reply.B[:0]
	w.sums = w.sums[:0]
	return w
}

func (p *workPool) put(w *work) { p.p.Put(w) }
