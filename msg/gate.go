package msg

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
)

// gate is a bounded number of tokens that are taken in the order of asking: credits of a
// connection, places in its send queue. It allocates only for the first callers that have to
// wait at once.
type gate struct {
	mu          sync.Mutex
	free        int
	dead        error // set by fail: nothing is given out any more
	first, last *turn
	idle        *turn // turns to use again
}

// turn is one caller in the queue.
type turn struct {
	want       int
	leave      chan error // room for one; nil means that the tokens are the caller's
	prev, next *turn
	queued     bool
}

// take waits for n tokens until ctx ends or the gate fails. Nobody overtakes.
func (g *gate) take(ctx context.Context, n int) error {
	g.mu.Lock()
	if err := g.dead; err != nil {
		g.mu.Unlock()
		return err
	}
	if g.first == nil && g.free >= n {
		g.free -= n
		g.mu.Unlock()
		return nil
	}
	t := g.enqueueLocked(n)
	g.mu.Unlock()
	select {
	case err := <-t.leave:
		g.mu.Lock()
		g.recycleLocked(t)
		g.mu.Unlock()
		return err
	case <-ctx.Done():
		return g.giveUp(t, ctx.Err())
	}
}

// giveUp leaves the queue, or accepts what was given at the same moment.
func (g *gate) giveUp(t *turn, cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !t.queued {
		err := <-t.leave
		g.recycleLocked(t)
		return err
	}
	g.removeLocked(t)
	g.recycleLocked(t)
	g.admitLocked() // a big request that leaves may have held up small ones
	return errs.New(errs.KindOf(cause), "msg", "", cause)
}

// put returns n tokens.
func (g *gate) put(n int) {
	if n == 0 {
		return
	}
	g.mu.Lock()
	g.free += n
	g.admitLocked()
	g.mu.Unlock()
}

// left is how many tokens nobody holds.
func (g *gate) left() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.free
}

// fail sends everybody away with err, now and later.
func (g *gate) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead == nil {
		g.dead = err
	}
	for g.first != nil {
		t := g.first
		g.removeLocked(t)
		t.leave <- g.dead
	}
}

func (g *gate) admitLocked() {
	for t := g.first; t != nil && t.want <= g.free; t = g.first {
		g.free -= t.want
		g.removeLocked(t)
		t.leave <- nil // never blocks: room for one, and each turn gets one
	}
}

func (g *gate) enqueueLocked(n int) *turn {
	t := g.idle
	if t == nil {
		t = &turn{leave: make(chan error, 1)}
	} else {
		g.idle, t.next = t.next, nil
	}
	t.want, t.queued, t.prev = n, true, g.last
	if g.last == nil {
		g.first = t
	} else {
		g.last.next = t
	}
	g.last = t
	return t
}

func (g *gate) removeLocked(t *turn) {
	if t.prev == nil {
		g.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		g.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next, t.queued = nil, nil, false
}

func (g *gate) recycleLocked(t *turn) { t.next, g.idle = g.idle, t }
