package msg

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
)

// gate is a bounded number of tokens that are taken in the order of asking, higher levels first:
// credits of a connection, places in its send queue, bytes under way. It allocates only for the
// first callers that have to wait at once.
type gate struct {
	mu      sync.Mutex
	free    int
	dead    error // set by fail: nothing is given out any more
	order   priority
	waiting levels
	lines   [MaxLevels]line
	idle    *turn // turns to use again
}

// line is a queue of those of one level who wait.
type line struct{ first, last *turn }

// turn is one caller in a line.
type turn struct {
	want       int
	level      int
	leave      chan error // room for one; nil means that the tokens are the caller's
	prev, next *turn
	queued     bool
}

// open gives the gate its tokens, and says how many of higher levels may pass one who waits.
func (g *gate) open(tokens, burst int) { g.free, g.order.burst = tokens, burst }

// take waits for n tokens until ctx ends or the gate fails. Nobody of the same level overtakes.
func (g *gate) take(ctx context.Context, level Level, n int) error {
	g.mu.Lock()
	if err := g.dead; err != nil {
		g.mu.Unlock()
		return err
	}
	if g.waiting == 0 && g.free >= n {
		g.free -= n
		g.mu.Unlock()
		return nil
	}
	t := g.enqueueLocked(int(level), n)
	g.admitLocked() // a higher level does not wait for one below it
	g.mu.Unlock()
	err, ok := wait.For(ctx, t.leave)
	if !ok {
		return g.giveUp(t, ctx.Err())
	}
	g.mu.Lock()
	g.recycleLocked(t)
	g.mu.Unlock()
	return err
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
	for i := range g.lines {
		for t := g.lines[i].first; t != nil; t = g.lines[i].first {
			g.removeLocked(t)
			t.leave <- g.dead
		}
	}
}

// admitLocked lets in whose turn it is, as long as there are tokens for it. One that wants many is
// waited for: others do not pass it, or it would never get them.
func (g *gate) admitLocked() {
	for g.waiting != 0 {
		level := g.order.next(g.waiting)
		t := g.lines[level].first
		if t.want > g.free {
			return
		}
		g.free -= t.want
		g.order.took(level, g.waiting)
		g.removeLocked(t)
		t.leave <- nil // never blocks: room for one, and each turn gets one
	}
}

func (g *gate) enqueueLocked(level, n int) *turn {
	t := g.idle
	if t == nil {
		t = &turn{leave: make(chan error, 1)}
	} else {
		g.idle, t.next = t.next, nil
	}
	q := &g.lines[level]
	t.want, t.level, t.queued, t.prev = n, level, true, q.last
	if q.last == nil {
		q.first = t
		g.waiting |= 1 << level
	} else {
		q.last.next = t
	}
	q.last = t
	return t
}

func (g *gate) removeLocked(t *turn) {
	q := &g.lines[t.level]
	if t.prev == nil {
		q.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	if q.first == nil {
		g.waiting &^= 1 << t.level
	}
	t.prev, t.next, t.queued = nil, nil, false
}

func (g *gate) recycleLocked(t *turn) { t.next, g.idle = g.idle, t }
