package wait

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/internal/list"
)

// Waiter is a goroutine that waits to be woken by another one. Its owner keeps it in some queue,
// under some lock, and the queue says whether it still waits:
//
//	the one who waits                 the one who wakes
//	lock; Arm; enqueue; unlock
//	Wait                              lock; dequeue; Wake; unlock
//	if its context ended: lock; if it is in the queue: dequeue, else Woken; unlock
//
// So a wake-up and the end of a context that race are told apart under the lock, and no wake-up is
// lost or left for the next wait. The zero value is ready to be armed; it is used again and again,
// and only the first Arm allocates.
type Waiter struct {
	ready chan error // has room for the one word of each wait
}

// Arm prepares the next wait. It is called before anybody else can see the waiter in its queue.
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

// Wake ends the wait. Whoever has taken the waiter out of its queue calls it, once.
func (w *Waiter) Wake(err error) { w.ready <- err }

// Woken returns what Wake said at the moment in which the context ended.
func (w *Waiter) Woken() error { return <-w.ready }

// Queue is goroutines that wait until something has changed that the owner's lock guards: a
// sync.Cond whose waits end with their contexts. The zero value is empty. Every method needs the
// owner's lock. It allocates only for the first callers that wait at once.
type Queue struct {
	waiting list.List[place] // oldest first
	idle    list.List[place] // to use again
}

// place is one caller in a queue.
type place struct {
	Waiter
	link list.Link[place] // in waiting, or in idle; in none when it was woken
}

// Wait lets go of mu until it is woken or ctx has ended, whose error it returns then. The caller
// looks again at what it waits for: others may have changed it since.
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

// WakeAll wakes everybody who waits.
func (q *Queue) WakeAll() {
	for p := q.waiting.First(); p != nil; p = q.waiting.First() {
		q.waiting.Remove(&p.link)
		p.Wake(nil)
	}
}

// Empty tells whether nobody waits.
func (q *Queue) Empty() bool { return q.waiting.Empty() }
