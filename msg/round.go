package msg

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/fabric"
)

// round is the quick requests of one batch (ServeOptions.Quick). The goroutine that polled serves
// them one after another, and their replies leave together: reading and writing the network is most
// of what a quick request costs. A handler that waits after all gives the rest to workers.
type round struct {
	s *serverConn

	mu    sync.Mutex
	room  [pollBatch]*Call
	calls []*Call // in room: those that were not begun
	held  bool    // replies wait at the provider for another Post
}

// isQuick tells whether the call may be one of a round.
func (c *Call) isQuick() bool {
	o, op := &c.s.srv.opts, c.header.Op
	quick := o.Quick != nil && o.Quick(op) || o.QuickAt != nil && o.QuickAt(op, Level(c.level))
	return quick && o.serviceOf(op) == nil
}

// fill takes the quick calls of a batch over. The last round is over.
func (r *round) fill(p *poller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = r.room[:copy(r.room[:], p.quick)]
	clear(p.quick)
	p.quick = p.quick[:0]
}

// roundMax is how long calls wait for those before them. What takes longer is not quick after all,
// such as reading records that are not in memory: it is better done side by side.
const roundMax = 200 * time.Microsecond

// serve runs the calls, and gives what is left to workers when it has taken too long. Replies that
// wait for a call which does not answer now are sent at the end. A call that has to wait for its
// admission is a worker's from then on.
func (r *round) serve() {
	for began := time.Now(); time.Since(began) < roundMax; {
		r.mu.Lock()
		if len(r.calls) == 0 {
			r.mu.Unlock()
			break
		}
		c := r.calls[0]
		r.calls = r.calls[1:]
		r.mu.Unlock()
		if r.s.srv.admit(c) {
			c.round = r
			r.s.srv.run(c)
		}
	}
	r.scatter()
}

// scatter gives the calls that were not begun to workers and sends the replies that wait.
func (r *round) scatter() {
	r.mu.Lock()
	left, held := r.calls, r.held
	r.calls, r.held = nil, false
	r.mu.Unlock()
	for _, c := range left {
		r.s.srv.dispatch(c)
	}
	if held {
		_ = r.s.post(nil) // a failure has ended the link
	}
}

// flags are those of a reply that is sent now.
func (r *round) flags() fabric.Flags {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held = len(r.calls) > 0; r.held {
		return fabric.FlagMore
	}
	return 0
}
