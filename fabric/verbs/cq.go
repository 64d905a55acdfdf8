//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/ring"
)

// cqShare is how many entries a device's queue has for each that the user asked for. An endpoint
// with depths s and r puts at most s + r + (s + 1) + 4 completions there: its own, those of grants,
// of the gate and of signs of life, and the two markers of its end. That is at most 4 * (s + r).
const cqShare = 4

// cq is a completion queue: one queue of each device that its endpoints use, and a list of
// completions that were taken from there before anybody asked, or that no device reports.
//
// Whoever sleeps has armed the devices; their event leaves a token in wake. A sleeper that takes
// it and leaves others asleep passes it on, because the devices must be armed again.
type cq struct {
	d     *domain
	depth int
	wake  chan struct{} // holds one token; closed by Close

	mu       sync.Mutex
	dev      poller
	parts    map[*device]*part
	eps      map[uint32]*endpoint // by index
	pending  ring.Ring[fabric.Completion]
	reserved int // sum of the depths of the endpoints that still can fill it
	sleepers int
	called   bool // one waiter is to come back with nothing
	closed   bool
}

// part is a queue's share of one device.
type part struct {
	cq     *cCQ
	events *watcher
	done   chan struct{} // the goroutine has ended
}

func newCQ(d *domain, depth int) *cq {
	return &cq{
		d: d, depth: depth, wake: make(chan struct{}, 1), dev: newPoller(),
		parts: map[*device]*part{}, eps: map[uint32]*endpoint{},
		pending: ring.New[fabric.Completion](depth),
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
		n, back, err := q.spin(ctx, dst)
		if !back {
			n, back, err = q.sleep(ctx, dst)
		}
		if back {
			settle(dst[:n])
			return n, err
		}
	}
}

// Wake implements fabric.Waker.
func (q *cq) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called = true
	q.wakeLocked()
}

// lookLocked is one look of a waiter: what there is, and whether the waiter goes back with it.
func (q *cq) lookLocked(dst []fabric.Completion) (n int, back bool, err error) {
	if q.closed {
		return 0, true, errClosed("verbs.Wait")
	}
	if n = q.takeLocked(dst); n > 0 {
		q.wakeLocked()
		return n, true, nil
	}
	back, q.called = q.called, false
	if back {
		q.wakeLocked()
	}
	return 0, back, nil
}

// spin looks for a while.
func (q *cq) spin(ctx context.Context, dst []fabric.Completion) (n int, back bool, err error) {
	var until time.Time
	for tries := 0; ; tries++ {
		q.mu.Lock()
		n, back, err := q.lookLocked(dst)
		q.mu.Unlock()
		if back {
			return n, true, err
		}
		if tries%16 != 0 {
			continue
		}
		if err := ctx.Err(); err != nil || q.d.opts.Spin < 0 {
			return 0, err != nil, err
		}
		now := time.Now()
		if tries == 0 {
			until = now.Add(q.d.opts.Spin)
		} else if now.After(until) {
			return 0, false, nil
		}
		runtime.Gosched() // whoever produces what this one waits for may need the processor
	}
}

// sleep waits for an event of a device, unless something came since spin looked.
func (q *cq) sleep(ctx context.Context, dst []fabric.Completion) (n int, back bool, err error) {
	q.mu.Lock()
	if !q.closed {
		q.dev.arm()
	}
	if n, back, err = q.lookLocked(dst); back { // it came before the queue was armed
		q.mu.Unlock()
		return n, true, err
	}
	q.sleepers++
	q.mu.Unlock()
	select {
	case <-q.wake:
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sleepers--
	if err != nil {
		q.wakeLocked() // the token may have been meant for this one
	}
	return 0, err != nil, err
}

// wakeLocked leaves a token if there is somebody to take it.
func (q *cq) wakeLocked() {
	if q.closed || q.sleepers == 0 {
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// takeLocked hands out what is there: first what was taken from the devices earlier.
func (q *cq) takeLocked(dst []fabric.Completion) int {
	n := 0
	for n < len(dst) && q.pending.Len() > 0 {
		dst[n] = q.pending.Pop()
		n++
	}
	for n < len(dst) {
		limit := min(len(dst)-n, batch)
		wcs := q.dev.poll(limit)
		for i := range wcs {
			if q.translateLocked(&wcs[i], &dst[n]) {
				n++
			}
		}
		if n > 0 || len(wcs) < limit {
			break
		}
	}
	return n
}

// drain takes what the devices have, so that silent requests give their places back and the
// provider's own requests are seen, although the user does not poll.
func (q *cq) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drainLocked()
}

func (q *cq) drainLocked() {
	var c fabric.Completion
	for {
		wcs := q.dev.poll(batch)
		for i := range wcs {
			if q.translateLocked(&wcs[i], &c) {
				q.pushLocked(&c)
			}
		}
		if len(wcs) < batch {
			break
		}
	}
}

// translateLocked turns a device's completion into the user's. It tells whether there is one:
// silent requests, the provider's own and failures (which finish completes) have none.
func (q *cq) translateLocked(wc *cWC, c *fabric.Completion) bool {
	w := read(wc)
	e := q.eps[uint32(w.id>>32)&^(1<<31)]
	if e == nil { // it was completed at its endpoint's end
		return false
	}
	if w.id&recvBit != 0 {
		return e.received(&w, c)
	}
	return e.sent(&w, c)
}

func (q *cq) pushLocked(c *fabric.Completion) {
	if q.closed {
		return
	}
	invariant.Check(!q.pending.Full(), "verbs: completion queue overflow")
	q.pending.Push(*c)
	q.wakeLocked()
}

// settle gives the places of completions that were handed out back to their endpoints.
func settle(got []fabric.Completion) {
	for i := range got {
		got[i].EP.(*endpoint).polled(got[i].Op)
	}
}

// reserve sets room for an endpoint's completions aside.
func (q *cq) reserve(depth int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed("verbs.CQ")
	}
	if depth > q.depth-q.reserved {
		return errs.Newf(errs.Invalid, "verbs.CQ", "",
			"depth %d is too small: %d taken, %d more wanted", q.depth, q.reserved, depth)
	}
	q.reserved += depth
	return nil
}

func (q *cq) unreserve(depth int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved -= depth
}

// attach makes the endpoint's completions known here and returns the device's queue for it.
func (q *cq) attach(e *endpoint) (*cCQ, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errClosed("verbs.CQ")
	}
	p := q.parts[e.dev]
	if p == nil {
		var err error
		if p, err = q.newPart(e.dev); err != nil {
			return nil, memoryError("verbs.CQ", e.dev.name, err)
		}
		q.parts[e.dev] = p
		q.dev.attach(p.cq)
		q.wakeLocked() // sleepers have to arm it
	}
	q.eps[e.index] = e
	return p.cq, nil
}

func (q *cq) newPart(dev *device) (*part, error) {
	c, fd, err := newCompletionQueue(dev.ctx, q.depth*cqShare)
	if err != nil {
		return nil, err
	}
	p := &part{cq: c, done: make(chan struct{})}
	if p.events, err = watch(fd); err != nil {
		_ = freeCompletionQueue(c)
		return nil, err
	}
	go q.serve(p)
	return p, nil
}

// serve turns a device's events into tokens until the watcher is closed.
func (q *cq) serve(p *part) {
	defer close(p.done)
	take := func() error {
		if takeCQEvents(p.cq) {
			return nil
		}
		return syscall.EAGAIN
	}
	for p.events.read(take) == nil {
		q.mu.Lock()
		q.wakeLocked()
		q.mu.Unlock()
	}
}

// release forgets an endpoint whose last completion has been pushed.
func (q *cq) release(e *endpoint) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.eps, e.index)
}

// detach gives the devices' queues back. What they hold is kept for the user.
func (q *cq) detach() {
	q.mu.Lock()
	q.drainLocked()
	parts := q.parts
	q.parts = map[*device]*part{}
	q.dev.detachAll()
	q.mu.Unlock()
	for _, p := range parts {
		p.events.close()
		<-p.done
		_ = freeCompletionQueue(p.cq)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.dev.free()
	}
}

// Close leaves the devices' queues to the domain while endpoints still use them.
func (q *cq) Close() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil
	}
	q.closed = true
	q.pending = ring.Ring[fabric.Completion]{}
	used := len(q.eps) > 0
	close(q.wake)
	q.mu.Unlock()
	if used {
		return nil
	}
	q.d.mu.Lock()
	delete(q.d.cqs, q)
	q.d.mu.Unlock()
	q.detach()
	return nil
}
