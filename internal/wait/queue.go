package wait

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/internal/list"
)

// Waiter is a goroutine that waits to be woken by another one. Its user keeps it in a queue under a
// lock; it waits as long as it is in the queue:
//
//	the waiting goroutine             the waking goroutine
//	lock; Arm; enqueue; unlock
//	Wait                              lock; dequeue; Wake; unlock
//	if its context ended: lock; if it is in the queue: dequeue, else Woken; unlock
//
// So a wake-up and the end of a context that race are told apart under the lock, and no wake-up is
// lost or left for the next wait. The zero value is ready to be armed; it can be reused, and only
// the first Arm allocates.
type Waiter struct {
	ready chan error // room for the one result of each wait
}

// Arm prepares the next wait. It is called before the waiter is in its queue.
func (w *Waiter) Arm() {
	if w.ready == nil {
		w.ready = make(chan error, 1)
	}
}

// Wait returns true and what Wake said, or false when ctx has ended before.
func (w *Waiter) Wait(ctx context.Context) (woken bool, err error) {
	err, woken = For(ctx, w.ready)
	return woken, err
}

// Wake ends the wait. The goroutine that has removed the waiter from its queue calls it, once.
func (w *Waiter) Wake(err error) { w.ready <- err }

// Woken returns the result of a Wake that came at the moment in which the context ended.
func (w *Waiter) Woken() error { return <-w.ready }

// Queue is a sync.Cond whose waits end with their contexts. The zero value is empty. Every method
// needs the owner's lock. It allocates only for the first callers that wait at once.
type Queue struct {
	waiting list.List[place] // oldest first
	idle    list.List[place] // for reuse
}

// place is one caller in a queue.
type place struct {
	Waiter
	link list.Link[place] // in waiting, or in idle; in none when it was woken
}

// Wait releases mu until it is woken or ctx has ended, whose error it returns then. As with
// sync.Cond the caller checks its condition again.
func (q *Queue) Wait(ctx context.Context, mu sync.Locker) error {
	p := q.idle.First()
	if p == nil {
		p = &place{}
	} else {
		q.idle.Remove(&p.link)
	}
	p.Arm()
	q.waiting.PushLast(&p.link, p)
	mu.Unlock()
	woken, err := p.Waiter.Wait(ctx)
	mu.Lock()
	switch {
	case woken:
	case p.link.In():
		q.waiting.Remove(&p.link)
		err = ctx.Err()
	default:
		err = p.Woken()
	}
	q.idle.PushFirst(&p.link, p)
	return err
}

// WakeAll wakes all waiters.
func (q *Queue) WakeAll() {
	for p := q.waiting.First(); p != nil; p = q.waiting.First() {
		q.waiting.Remove(&p.link)
		p.Wake(nil)
	}
}

// Empty tells whether nobody waits.
func (q *Queue) Empty() bool { return q.waiting.Empty() }
