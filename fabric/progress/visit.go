package progress

import (
	"context"
	"sync"
	"time"
)

// Period is how often each is visited.
const Period = time.Millisecond

// Visited is something that was left alone for a moment. It is looked at once a Period until Look
// returns false.
type Visited interface{ Look() bool }

// Visitor visits what was added, all of it in one goroutine that sleeps while there is nothing, so
// that leaving something alone costs no timer. Safe for concurrent use.
type Visitor[T Visited] struct {
	kick chan struct{} // one token: there is something to visit

	mu  sync.Mutex // a leaf: Look is called without it
	all []T
}

// NewVisitor makes a visitor whose Run has to be started.
func NewVisitor[T Visited]() *Visitor[T] { return &Visitor[T]{kick: make(chan struct{}, 1)} }

// Add has v visited, for the first time in one to two Periods. It may be called with v's lock held.
func (w *Visitor[T]) Add(v T) {
	w.mu.Lock()
	w.all = append(w.all, v)
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// Run visits until ctx ends.
func (w *Visitor[T]) Run(ctx context.Context) {
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
		for more := true; more; more = w.visit() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// visit looks at everything once and tells whether there is anything left to visit.
func (w *Visitor[T]) visit() bool {
	w.mu.Lock()
	due := w.all
	w.all = nil
	w.mu.Unlock()
	stay := due[:0]
	for _, v := range due {
		if v.Look() {
			stay = append(stay, v)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(stay, w.all...)
	return len(w.all) > 0
}
