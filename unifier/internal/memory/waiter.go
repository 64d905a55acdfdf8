package memory

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
)

// Waiter is somebody who waits, in a Line or for one Wake. It is used again and allocates once. All
// but the waiting itself is done under the lock that guards the line.
type Waiter struct {
	ready   chan struct{} // a token when the wait is over
	err     error         // of the wait that is over
	link    list.Link[Waiter]
	request *Request // that waits for memory; nil: something else
}

// Arm prepares the next wait.
func (w *Waiter) Arm() {
	if w.ready == nil {
		w.ready = make(chan struct{}, 1)
	}
	select {
	case <-w.ready:
	default:
	}
	w.err = nil
}

// Wake ends the wait, or the next one if it has not begun.
func (w *Waiter) Wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Ready gets a token when the wait is over.
func (w *Waiter) Ready() <-chan struct{} { return w.ready }

// Line is a queue of waiters. Guarded by its owner's lock.
type Line struct{ list.List[Waiter] }

// Push puts an armed waiter at the end.
func (l *Line) Push(w *Waiter) { l.PushLast(&w.link, w) }

// PushFront puts an armed waiter before all others.
func (l *Line) PushFront(w *Waiter) { l.PushFirst(&w.link, w) }

// Release takes a waiter out and ends its wait with err.
func (l *Line) Release(w *Waiter, err error) {
	l.Remove(&w.link)
	w.err = err
	w.Wake()
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
		return w.err
	}
	mu.Unlock()
	wait.For(ctx, w.ready)
	mu.Lock()
	if !w.link.In() {
		return w.err
	}
	l.Remove(&w.link)
	return ctx.Err()
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
	*r = Request{Got: r.Got[:0], waiter: Waiter{ready: r.waiter.ready}}
}
