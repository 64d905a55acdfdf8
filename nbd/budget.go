package nbd

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/internal/invariant"
)

// budget hands out bytes up to a bound, first come first served: a large request is not overtaken
// by small ones for ever, and who waits is woken exactly when its bytes are there.
type budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	peak    int64
	waits   int64 // how often somebody had to wait
	waiters []*budgetWaiter
}

type budgetWaiter struct {
	n     int64
	ready chan struct{}
}

func newBudget(limit int64) *budget { return &budget{limit: limit} }

// try takes n bytes if they are there and nobody waits.
func (b *budget) try(n int64) bool {
	b.mu.Lock()
	ok := b.tryLocked(n)
	b.mu.Unlock()
	return ok
}

func (b *budget) tryLocked(n int64) bool {
	if len(b.waiters) > 0 || b.used+n > b.limit {
		return false
	}
	b.used += n
	b.peak = max(b.peak, b.used)
	return true
}

// acquire takes n bytes, waiting for them until ctx ends. n must not exceed the limit.
func (b *budget) acquire(ctx context.Context, n int64) error {
	invariant.Check(n <= b.limit, "%d bytes of a budget of %d", n, b.limit)
	b.mu.Lock()
	if b.tryLocked(n) {
		b.mu.Unlock()
		return nil
	}
	w := &budgetWaiter{n: n, ready: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.waits++
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		b.abandon(w)
		return ctx.Err()
	}
}

// abandon takes w out of the queue, or gives back what it was granted in the same moment.
func (b *budget) abandon(w *budgetWaiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.waiters {
		if x == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			b.grantLocked()
			return
		}
	}
	b.used -= w.n
	b.grantLocked()
}

func (b *budget) release(n int64) {
	b.mu.Lock()
	b.used -= n
	if len(b.waiters) > 0 {
		b.grantLocked()
	}
	bad := b.used < 0
	b.mu.Unlock()
	invariant.Check(!bad, "budget released more than was taken")
}

func (b *budget) grantLocked() {
	for len(b.waiters) > 0 {
		w := b.waiters[0]
		if b.used+w.n > b.limit {
			return
		}
		b.used += w.n
		b.peak = max(b.peak, b.used)
		b.waiters[0] = nil
		b.waiters = b.waiters[1:]
		close(w.ready)
	}
}

func (b *budget) snapshot() (used, peak, waits int64, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.peak, b.waits, len(b.waiters)
}
