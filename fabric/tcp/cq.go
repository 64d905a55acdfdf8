package tcp

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// cq is a completion queue. Whoever pushes into an empty queue, while somebody sleeps, leaves one
// token in wake; a waiter that takes it and leaves completions behind passes it on.
type cq struct {
	d    *domain
	wake chan struct{} // holds one token; closed by Close

	mu       sync.Mutex
	entries  ring[fabric.Completion]
	reserved int // sum of the depths of the endpoints that still can fill it
	sleepers int
	closed   bool
}

func newCQ(d *domain, depth int) *cq {
	return &cq{d: d, wake: make(chan struct{}, 1), entries: newRing[fabric.Completion](depth)}
}

func (q *cq) Poll(dst []fabric.Completion) int {
	q.mu.Lock()
	n := q.takeLocked(dst)
	q.mu.Unlock()
	settle(dst[:n])
	return n
}

func (q *cq) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	invariant.Check(len(dst) > 0, "CQ.Wait without room for a completion")
	for {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return 0, errClosed("tcp.Wait")
		}
		if n := q.takeLocked(dst); n > 0 {
			q.wakeLocked()
			q.mu.Unlock()
			settle(dst[:n])
			return n, nil
		}
		q.sleepers++
		q.mu.Unlock()
		err := q.sleep(ctx)
		q.mu.Lock()
		q.sleepers--
		if err != nil {
			q.wakeLocked() // the token may have been meant for this one
		}
		q.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
}

func (q *cq) sleep(ctx context.Context) error {
	done := ctx.Done()
	if done == nil {
		<-q.wake
		return nil
	}
	select {
	case <-q.wake:
		return nil
	case <-done:
		return ctx.Err()
	}
}

// wakeLocked leaves a token if there is something to take and somebody to take it.
func (q *cq) wakeLocked() {
	if q.closed || q.sleepers == 0 || q.entries.n == 0 {
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *cq) takeLocked(dst []fabric.Completion) int {
	n := 0
	for n < len(dst) && q.entries.n > 0 {
		dst[n] = q.entries.pop()
		n++
	}
	return n
}

func (q *cq) push(c *fabric.Completion) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	invariant.Check(!q.entries.full(), "tcp: completion queue overflow")
	q.entries.push(*c)
	q.wakeLocked()
}

// settle gives the places of polled completions back to their endpoints.
func settle(got []fabric.Completion) {
	for i := range got {
		got[i].EP.(*endpoint).polled(got[i].Op)
	}
}

func (q *cq) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		q.entries = ring[fabric.Completion]{}
		close(q.wake)
	}
	return nil
}

// reserve sets room for an endpoint's completions aside.
func (q *cq) reserve(depth int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed("tcp.CQ")
	}
	if size := len(q.entries.buf); depth > size-q.reserved {
		return errs.Newf(errs.Invalid, "tcp.CQ", "",
			"depth %d is too small: %d taken, %d more wanted", size, q.reserved, depth)
	}
	q.reserved += depth
	return nil
}

func (q *cq) unreserve(depth int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved -= depth
}
