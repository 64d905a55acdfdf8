package progress

import (
	"context"
	"sync"
	"time"
)

// Period is the time between two checks.
const Period = time.Millisecond

// Watched is something that may have been left idle. It is checked once a Period until Check
// returns false.
type Watched interface{ Check() bool }

// Watchdog checks what was added, all of it in one goroutine that sleeps while there is nothing, so
// that leaving something idle costs no timer. Safe for concurrent use.
type Watchdog[T Watched] struct {
	kick chan struct{} // one token: there is something to check

	mu  sync.Mutex // a leaf: Check is called without it
	all []T
}

// NewWatchdog makes a watchdog whose Run has to be started.
func NewWatchdog[T Watched]() *Watchdog[T] { return &Watchdog[T]{kick: make(chan struct{}, 1)} }

// Add has v checked, for the first time within a Period. It may be called with v's lock held.
func (w *Watchdog[T]) Add(v T) {
	w.mu.Lock()
	w.all = append(w.all, v)
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// Run runs the checks until ctx ends.
func (w *Watchdog[T]) Run(ctx context.Context) {
	tick := time.NewTicker(Period)
	defer tick.Stop()
	for {
		tick.Stop()
		select {
		case <-ctx.Done():
			return
		case <-w.kick:
		}
		tick.Reset(Period)
		for more := true; more; more = w.checkAll() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// checkAll checks everything once and tells whether anything is left to check.
func (w *Watchdog[T]) checkAll() bool {
	w.mu.Lock()
	due := w.all
	w.all = nil
	w.mu.Unlock()
	stay := due[:0]
	for _, v := range due {
		if v.Check() {
			stay = append(stay, v)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(stay, w.all...)
	return len(w.all) > 0
}
