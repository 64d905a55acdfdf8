package tcp

import (
	"context"
	"sync"
	"time"
)

// watch visits the roles that were let go, all of a domain's in one goroutine, which sleeps while
// there are none.
type watch struct {
	kick chan struct{} // one token: there is something to visit

	mu    sync.Mutex // taken with role.mu held, never the other way round
	roles []*role
}

func (w *watch) add(r *role) {
	w.mu.Lock()
	w.roles = append(w.roles, r)
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// run ends with ctx. Roles that are let go later belong to endpoints that end too.
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

// visit looks at every role once and tells whether there are any left to visit.
func (w *watch) visit() bool {
	w.mu.Lock()
	due := w.roles
	w.roles = nil
	w.mu.Unlock()
	stay := due[:0]
	for _, r := range due {
		if r.look() {
			stay = append(stay, r)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.roles = append(stay, w.roles...)
	return len(w.roles) > 0
}
