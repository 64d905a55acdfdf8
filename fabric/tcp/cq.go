package tcp

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/ring"
)

// cq is a completion queue. Whoever pushes into an empty queue, while somebody sleeps, leaves one
// token in wake; a waiter that takes it and leaves completions behind passes it on.
type cq struct {
	d    *domain
	opts fabric.CQOptions
	wake chan struct{} // holds one token; closed by Close

	mu       sync.Mutex
	entries  ring.Ring[entry]
	rings    int // of the entries, those that end a Wait
	reserved int // sum of the depths of the endpoints that still can fill it
	sleepers int
	eager    int       // of the sleepers, those that would read themselves
	attached int       // endpoints that have been attached
	sole     *endpoint // the only one of them, or nil
	reading  *endpoint // its socket is being read by a waiter of this queue, which is blocked
	stopped  bool      // that waiter was interrupted
	called   bool      // Wake was called
	closed   bool
}

// entry is a completion; rings tells whether it ends a Wait.
type entry struct {
	fabric.Completion
	rings bool
}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	return &cq{
		d: d, opts: opts, wake: make(chan struct{}, 1), entries: ring.New[entry](opts.Depth),
	}
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
		if q.rings > 0 {
			n := q.takeLocked(dst)
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
		due := q.rings > 0 || q.closed || q.called
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
	ready := q.rings > 0 || q.closed || q.called
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
	if q.closed || q.rings == 0 && !q.called {
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
	if q.rings > 0 || q.closed || q.called || q.reading != nil {
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

func (q *cq) takeLocked(dst []fabric.Completion) int {
	n := 0
	for n < len(dst) && q.entries.Len() > 0 {
		e := q.entries.Pop()
		if e.rings {
			q.rings--
		}
		dst[n] = e.Completion
		n++
	}
	return n
}

// push adds a completion; solicited is that of a receive whose sender said so. It tells whether
// that woke somebody who would have read it from the socket.
func (q *cq) push(c *fabric.Completion, solicited bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	invariant.Check(!q.entries.Full(), "tcp: completion queue overflow")
	e := entry{Completion: *c, rings: solicited || c.Err != nil || !q.opts.SolicitedOnly}
	q.entries.Push(e)
	if !e.rings {
		return false
	}
	q.rings++
	q.wakeLocked()
	return q.eager == 1 // several would not know which of them is to read
}

// settle gives the places of polled completions back to their endpoints.
func settle(got []fabric.Completion) {
	for i := range got {
		got[i].EP.(*endpoint).polled(got[i].Op)
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
	if !q.closed {
		q.closed = true
		if q.reading != nil {
			q.interruptLocked()
		}
		q.entries, q.rings = ring.Ring[entry]{}, 0
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
	if size := q.entries.Cap(); depth > size-q.reserved {
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
