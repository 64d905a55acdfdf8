// Package budget is a bounded amount that is handed out first come, first served: bytes of memory,
// numbers of requests. Whoever needs several units takes them in one step, so that two takers never
// hold halves and wait for each other.
package budget

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
)

// Budget hands out Total units. Make one with New. Safe for concurrent use. It allocates only for
// the first callers that have to wait at once.
type Budget struct {
	total int64

	mu      sync.Mutex
	used    int64
	high    int64
	waits   uint64
	waiters list.List[waiter] // oldest first
	idle    list.List[waiter] // to use again
}

type waiter struct {
	n     int64
	ready chan struct{}     // room for one: the units are the waiter's
	place list.Link[waiter] // in waiters, or in idle; in none when the units are the waiter's
}

// New makes a budget of total units.
func New(total int64) *Budget {
	invariant.Check(total > 0, "budget of %d units", total)
	return &Budget{total: total}
}

// Total is the size of the budget.
func (b *Budget) Total() int64 { return b.total }

// Acquire takes n units, waiting behind earlier takers until they are free or ctx ends. Asking for
// more than the total is a programmer's error.
func (b *Budget) Acquire(ctx context.Context, n int64) error {
	invariant.Check(n >= 0 && n <= b.total, "budget.Acquire of more than there is")
	b.mu.Lock()
	if b.waiters.Empty() && b.used+n <= b.total {
		b.takeLocked(n)
		b.mu.Unlock()
		return nil
	}
	b.waits++
	w := b.pushLocked(n)
	b.mu.Unlock()
	_, ok := wait.For(ctx, w.ready)
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	if !ok {
		err = ctx.Err()
		b.giveUpLocked(w)
	}
	b.idle.PushFirst(&w.place, w)
	return err
}

// giveUpLocked ends the waiting of one whose context has ended.
func (b *Budget) giveUpLocked(w *waiter) {
	if w.place.In() {
		b.waiters.Remove(&w.place)
	} else { // granted in the same moment: give it back
		<-w.ready
		b.used -= w.n
	}
	b.wakeLocked() // the waiter that left may have blocked smaller ones behind it
}

// pushLocked puts a waiter at the end of the queue.
func (b *Budget) pushLocked(n int64) *waiter {
	w := b.idle.First()
	if w == nil {
		w = &waiter{ready: make(chan struct{}, 1)}
	} else {
		b.idle.Remove(&w.place)
	}
	w.n = n
	b.waiters.PushLast(&w.place, w)
	return w
}

// TryAcquire takes n units if nobody waits and they are free.
func (b *Budget) TryAcquire(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.waiters.Empty() || b.used+n > b.total {
		return false
	}
	b.takeLocked(n)
	return true
}

// Release gives n units back.
func (b *Budget) Release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	invariant.Check(b.used >= 0, "budget.Release of more than was taken")
	b.wakeLocked()
}

func (b *Budget) takeLocked(n int64) {
	b.used += n
	b.high = max(b.high, b.used)
}

func (b *Budget) wakeLocked() {
	for w := b.waiters.First(); w != nil && b.used+w.n <= b.total; w = b.waiters.First() {
		b.takeLocked(w.n)
		b.waiters.Remove(&w.place)
		w.ready <- struct{}{} // it has room: each wait gets one
	}
}

// Usage is a moment's view of a budget.
type Usage struct {
	Used, High int64
	Waits      uint64 // how often somebody had to wait
}

// Usage tells how much is taken now, at most ever, and how often somebody waited.
func (b *Budget) Usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Usage{Used: b.used, High: b.high, Waits: b.waits}
}
