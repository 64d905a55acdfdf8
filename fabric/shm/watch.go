package shm

import (
	"context"
	"sync"
	"time"
)

// watchPeriod is how often queues are visited whose role was let go.
const watchPeriod = time.Millisecond

// watch visits the queues whose role was let go, all of a domain's in one goroutine, which sleeps
// while there are none.
type watch struct {
	kick chan struct{} // one token: there is something to visit

	mu     sync.Mutex // taken with cq.mu held, never the other way round
	queues []*cq
}

func (w *watch) add(q *cq) {
	w.mu.Lock()
	w.queues = append(w.queues, q)
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// run ends with ctx. Queues that are let go later belong to endpoints that end too.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		tick.Stop()
		select {
		case <-ctx.Done():
			return
		case <-w.kick:
		}
		tick.Reset(watchPeriod)
		for more := true; more; more = w.visit() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// visit looks at every queue once and tells whether there are any left to visit.
func (w *watch) visit() bool {
	w.mu.Lock()
	due := w.queues
	w.queues = nil
	w.mu.Unlock()
	stay := due[:0]
	for _, q := range due {
		if q.look() {
			stay = append(stay, q)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues = append(stay, w.queues...)
	return len(w.queues) > 0
}
