package memory

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
)

// Waiter is somebody who waits in a Line. It is used again and allocates once.
type Waiter struct {
	waiter  wait.Waiter
	link    list.Link[Waiter]
	request *Request // that waits for memory; nil: something else
}

// Line is a queue of waiters. Guarded by its owner's lock. Whoever is pushed waits next.
type Line struct{ list.List[Waiter] }

// Push puts a waiter at the end.
func (l *Line) Push(w *Waiter) {
	w.waiter.Arm()
	l.PushLast(&w.link, w)
}

// PushFront puts a waiter before all others.
func (l *Line) PushFront(w *Waiter) {
	w.waiter.Arm()
	l.PushFirst(&w.link, w)
}

// Release takes a waiter out and ends its wait with err.
func (l *Line) Release(w *Waiter, err error) {
	l.Remove(&w.link)
	w.waiter.Wake(err)
}

// ReleaseAll ends all waits with err.
func (l *Line) ReleaseAll(err error) {
	for w := l.First(); w != nil; w = l.First() {
		l.Release(w, err)
	}
}

// Wait waits until somebody releases w, or ctx ends. It lets go of the lock meanwhile.
func (l *Line) Wait(ctx context.Context, mu sync.Locker, w *Waiter) error {
	if !w.link.In() {
		return w.waiter.Woken() // since it was pushed
	}
	mu.Unlock()
	woken, err := w.waiter.Wait(ctx)
	mu.Lock()
	switch {
	case woken:
		return err
	case w.link.In():
		l.Remove(&w.link)
		return ctx.Err()
	default:
		return w.waiter.Woken()
	}
}

// Request is memory that somebody needs at once: Count blocks of class Shift, and More of class
// Small. Got is what he has, in this order; it is empty or complete whenever he does not wait.
type Request struct {
	Shift uint8
	Count int
	Small uint8
	More  int
	Got   []Block

	waiter Waiter
}

// Ask sets what is needed.
func (r *Request) Ask(shift uint8, count int) {
	r.Shift, r.Count, r.Small, r.More = shift, count, 0, 0
}

// Reset makes a request that holds nothing ready for the next use.
func (r *Request) Reset() {
	clear(r.Got)
	r.Got = r.Got[:0]
	r.Ask(0, 0)
}
