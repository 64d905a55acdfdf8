package tcp

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// cq is a completion queue. Whoever pushes into an empty queue, while somebody sleeps, leaves one
// token in wake; a waiter that takes it and leaves completions behind passes it on.
type cq struct {
	opts fabric.CQOptions
	wake chan struct{} // holds one token; closed by Close

	mu sync.Mutex
	provider.Completions
	sleepers int
	eager    int       // of the sleepers, those that would read themselves
	attached int       // endpoints that have been attached
	sole     *endpoint // the only one of them, or nil
	reading  *endpoint // its socket is being read by a waiter of this queue, which is blocked
	stopped  bool      // that waiter was interrupted
	called   bool      // Wake was called
}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	q := &cq{opts: opts, wake: make(chan struct{}, 1)}
	q.Open(&d.Domain, opts)
	return q
}

func (q *cq) Poll(dst []fabric.Completion) int {
	q.mu.Lock()
	n := q.Take(dst)
	q.mu.Unlock()
	settle(dst[:n])
	return n
}

func (q *cq) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	invariant.Check(len(dst) > 0, "CQ.Wait without room for a completion")
	for {
		q.mu.Lock()
		if q.Closed() {
			q.mu.Unlock()
			return 0, q.ClosedErr()
		}
		if q.Ripe() {
			n := q.Take(dst)
			q.wakeLocked()
			q.mu.Unlock()
			settle(dst[:n])
			return n, nil
		}
		if q.called {
			q.called = false
			q.mu.Unlock()
			return 0, nil
		}
		sole, eager := q.sole, 0
		q.mu.Unlock()
		if sole != nil && ctx.Done() == nil {
			if sole.readFor(q) {
				continue
			}
			eager = 1
		}
		err := q.sleep(ctx, eager)
		q.mu.Lock()
		q.sleepers--
		q.eager -= eager
		if err != nil {
			q.wakeLocked() // the token may have been meant for this one
		}
		q.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
}

// spin polls the queue for as long as its options want, while somebody else reads, and tells
// whether that was worth it.
func (q *cq) spin() bool {
	for begin := time.Now(); time.Since(begin) < q.opts.Spin; yield() {
		q.mu.Lock()
		due := q.Ripe() || q.Closed() || q.called
		q.mu.Unlock()
		if due {
			return true
		}
	}
	return false
}

// sleep waits for a token. It counts the sleeper, which uncounts itself; it does not sleep if
// something came meanwhile.
func (q *cq) sleep(ctx context.Context, eager int) error {
	q.mu.Lock()
	q.sleepers++
	q.eager += eager
	ready := q.Ripe() || q.Closed() || q.called
	q.mu.Unlock()
	if ready || q.opts.Spin > 0 && q.spin() {
		return nil // a token that was left meanwhile wakes the next sleeper for nothing, once
	}
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
	if q.Closed() || !q.Ripe() && !q.called {
		return
	}
	if q.reading != nil {
		q.interruptLocked()
		return
	}
	if q.sleepers == 0 {
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// interruptLocked makes the waiter that is blocked in a socket look at the queue. Under mu, so that
// it cannot hit a later reader.
func (q *cq) interruptLocked() {
	if !q.stopped {
		q.stopped = true
		_ = q.reading.sock.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// startReading is asked by a waiter before it blocks in e's socket: not if there is something to
// take.
func (q *cq) startReading(e *endpoint) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Ripe() || q.Closed() || q.called || q.reading != nil {
		return false
	}
	q.reading = e
	return true
}

// stopReading tells a waiter that came back from the socket whether it was interrupted.
func (q *cq) stopReading() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	stopped := q.stopped
	q.reading, q.stopped = nil, false
	return stopped
}

// crowded tells whether more waiters sleep here, who rely on somebody to read.
func (q *cq) crowded() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sleepers > 0
}

// attach counts an endpoint of this queue.
func (q *cq) attach(e *endpoint) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sole == e {
		return
	}
	q.sole = nil
	if q.attached++; q.attached == 1 {
		q.sole = e
	}
}

// push adds a completion; solicited is that of a receive whose sender said so. It tells whether
// that woke somebody who would have read it from the socket.
func (q *cq) push(c *fabric.Completion, solicited bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.Push(c, solicited) {
		return false
	}
	q.wakeLocked()
	return q.eager == 1 // several would not know which of them is to read
}

// settle gives the places of polled completions back to their endpoints.
func settle(got []fabric.Completion) {
	for i := range got {
		got[i].EP.(*endpoint).Polled(got[i].Op)
	}
}

// Wake implements fabric.Waker.
func (q *cq) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called = true
	q.wakeLocked()
}

func (q *cq) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Shut() {
		if q.reading != nil {
			q.interruptLocked()
		}
		close(q.wake)
	}
	return nil
}
