package progress

import (
	"context"
	"sync"
	"time"
)

// Period is the time between two checks while something presses, LongPeriod while nothing does.
// Each check wakes threads of the runtime that would sleep: a thousand a second cost a busy process
// up to a quarter of its processor time, which a sixteenth of them does not.
const (
	Period     = time.Millisecond
	LongPeriod = 16 * time.Millisecond
)

// Watched is something that may have been left idle. It is checked once a period until Check
// returns false. Pressing tells that somebody may depend on it who would notice a longer one.
type Watched interface {
	Check() bool
	Pressing() bool
}

// Watchdog checks what was added, all of it in one goroutine that sleeps while there is nothing, so
// that leaving something idle costs no timer. Safe for concurrent use.
type Watchdog[T Watched] struct {
	kick chan struct{} // one token: there is something to check, or something presses by now

	mu  sync.Mutex // a leaf: Check is called without it
	all []T
}

// NewWatchdog makes a watchdog whose Run has to be started.
func NewWatchdog[T Watched]() *Watchdog[T] { return &Watchdog[T]{kick: make(chan struct{}, 1)} }

// Add has v checked, for the first time within a period. It may be called with v's lock held.
func (w *Watchdog[T]) Add(v T) {
	w.mu.Lock()
	w.all = append(w.all, v)
	w.mu.Unlock()
	w.Hurry()
}

// Hurry has the watchdog look whether something presses that did not.
func (w *Watchdog[T]) Hurry() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// Run runs the checks until ctx ends.
func (w *Watchdog[T]) Run(ctx context.Context) {
	timer := time.NewTimer(LongPeriod)
	defer timer.Stop()
	for {
		timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-w.kick:
		}
		for more := true; more; more = w.checkAll() {
			if !w.sleep(ctx, timer) {
				return
			}
		}
	}
}

// sleep waits for one period: what is added or presses meanwhile may make it a short one. It is
// false when ctx has ended.
func (w *Watchdog[T]) sleep(ctx context.Context, timer *time.Timer) bool {
	short := w.pressing()
	if short {
		timer.Reset(Period)
	} else {
		timer.Reset(LongPeriod)
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-w.kick:
			if !short && w.pressing() {
				short = true
				timer.Reset(Period)
			}
		}
	}
}

// pressing tells whether something of what is checked presses.
func (w *Watchdog[T]) pressing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.all {
		if v.Pressing() {
			return true
		}
	}
	return false
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
