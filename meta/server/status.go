package server

import (
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// counter counts one operation.
type counter struct {
	calls, failed atomic.Uint64
	nanos         atomic.Int64
}

func (c *counter) add(d time.Duration, err error) {
	c.calls.Add(1)
	c.nanos.Add(int64(d))
	if err != nil {
		c.failed.Add(1)
	}
}

// Count is what one operation has done so far.
type Count struct {
	Op     string
	Calls  uint64
	Failed uint64
	Time   time.Duration // all calls together
}

// Status lists the operations that were called, in the order of their numbers.
func (s *Server) Status() []Count {
	var all []Count
	for op := range meta.OpEnd {
		c := &s.counts[op]
		if n := c.calls.Load(); n > 0 {
			all = append(all, Count{Op: op.String(), Calls: n, Failed: c.failed.Load(),
				Time: time.Duration(c.nanos.Load())})
		}
	}
	return all
}
