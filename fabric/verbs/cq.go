//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/invariant"
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
//
// A queue of CQOptions.SolicitedOnly is armed all the time, for solicited events, since a
// completion does not tell whether it was one. An event ripens everything that is there.
type cq struct {
	d    *domain
	opts fabric.CQOptions
	wake chan struct{} // holds one token; closed by Close

	mu sync.Mutex
	// Completions were taken from the devices before anybody asked, or no device reports them.
	provider.Completions
	dev      poller
	parts    map[*device]*part
	eps      map[uint32]*endpoint // by index
	last     *endpoint            // that was found there, or nil
	sleepers int
	vain     int  // how often in a row spinning brought nothing
	called   bool // one waiter is to come back with nothing
}

// part is a queue's share of one device.
type part struct {
	cq     *cCQ
	events *watcher
	done   chan struct{} // the goroutine has ended
}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	q := &cq{
		d: d, opts: opts, wake: make(chan struct{}, 1), dev: newPoller(),
		parts: map[*device]*part{}, eps: map[uint32]*endpoint{},
	}
	q.Open(&d.Domain, opts)
	return q
}

func (q *cq) Poll(dst []fabric.Completion) int {
	q.mu.Lock()
	n := q.takeLocked(dst, 1)
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
func (q *cq) lookLocked(dst []fabric.Completion, looks int) (n int, back bool, err error) {
	if q.Closed() {
		return 0, true, q.ClosedErr()
	}
	if q.opts.SolicitedOnly {
		n = q.TakeRipe(dst)
	} else {
		n = q.takeLocked(dst, looks)
	}
	back, q.called = n > 0 || q.called, q.called && n > 0
	if back {
		q.wakeLocked()
	}
	return n, back, nil
}

// spinDefault is how long a waiter polls if the user does not say; vainMax, how often it does so in
// vain before it tries it in one of vainMax times only.
const (
	spinDefault = 50 * time.Microsecond
	vainMax     = 16
)

// spinLocked is how long a waiter should poll.
func (q *cq) spinLocked() time.Duration {
	switch {
	case q.opts.SolicitedOnly: // what comes by polling does not tell whether it was solicited
		return -1
	case q.opts.Spin != 0:
		return q.opts.Spin
	case q.vain >= vainMax && q.vain%vainMax != 0:
		q.vain++
		return -1
	}
	return spinDefault
}

// spin looks for a while. The devices are looked at several times in one call, and the clock is
// read only when those brought nothing.
func (q *cq) spin(ctx context.Context, dst []fabric.Completion) (n int, back bool, err error) {
	const looks = 256 // some microseconds
	q.mu.Lock()
	n, back, err = q.lookLocked(dst, 1)
	limit := time.Duration(0)
	if !back {
		limit = q.spinLocked()
	}
	q.mu.Unlock()
	if back || limit < 0 {
		return n, back, err
	}
	var start time.Time
	for tries := 1; ; tries++ {
		q.mu.Lock()
		if n, back, err = q.lookLocked(dst, looks); back {
			q.vain = 0
		}
		q.mu.Unlock()
		if back {
			return n, true, err
		}
		if err := ctx.Err(); err != nil {
			return 0, true, err
		}
		if now := time.Now(); start.IsZero() {
			start = now
		} else if now.Sub(start) > limit {
			break
		}
		if tries%16 == 0 { // not more often: it wakes other threads, which look for work in vain
			runtime.Gosched() // whoever produces what this one waits for may need the processor
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.vain++
	return 0, false, nil
}

// sleep waits for an event of a device, unless something came since spin looked.
func (q *cq) sleep(ctx context.Context, dst []fabric.Completion) (n int, back bool, err error) {
	if err := ctx.Err(); err != nil {
		return 0, true, err
	}
	q.mu.Lock()
	if !q.Closed() && !q.opts.SolicitedOnly {
		q.dev.arm(false)
	}
	if n, back, err = q.lookLocked(dst, 1); back { // it came before the queue was armed
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
	if q.Closed() || q.sleepers == 0 {
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// takeLocked hands out what is there: first what was taken from the devices earlier. Devices that
// have nothing are looked at so many times.
func (q *cq) takeLocked(dst []fabric.Completion, looks int) int {
	n := q.Take(dst)
	for n < len(dst) {
		limit := min(len(dst)-n, batch)
		if n > 0 {
			looks = 1
		}
		wcs := q.dev.poll(limit, looks)
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
		wcs := q.dev.poll(batch, 1)
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

// endpointLocked finds an endpoint by its index; mostly it is the one of the last completion.
func (q *cq) endpointLocked(index uint32) *endpoint {
	if q.last == nil || q.last.index != index {
		q.last = q.eps[index]
	}
	return q.last
}

// forgetLocked forgets an endpoint that has no completions any more.
func (q *cq) forgetLocked(e *endpoint) {
	delete(q.eps, e.index)
	q.last = nil
}

// translateLocked turns a device's completion into the user's. It tells whether there is one:
// silent requests, the provider's own and failures (which finish completes) have none.
func (q *cq) translateLocked(wc *cWC, c *fabric.Completion) bool {
	w := read(wc)
	e := q.endpointLocked(uint32(w.id>>32) &^ (1 << 31))
	if e == nil { // it was completed at its endpoint's end
		return false
	}
	if w.id&recvBit != 0 {
		return e.received(&w, c)
	}
	return e.sent(&w, c)
}

func (q *cq) pushLocked(c *fabric.Completion) {
	if q.Push(c, false) {
		q.wakeLocked()
	}
}

// settle gives the places of completions that were handed out back to their endpoints.
func settle(got []fabric.Completion) {
	for i := range got {
		got[i].EP.(*endpoint).Polled(got[i].Op)
	}
}

// attach makes the endpoint's completions known here and returns the device's queue for it.
func (q *cq) attach(e *endpoint) (*cCQ, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Closed() {
		return nil, q.ClosedErr()
	}
	p := q.parts[e.dev]
	if p == nil {
		var err error
		if p, err = q.newPart(e.dev); err != nil {
			return nil, memoryError("verbs.CQ", e.dev.name, err)
		}
		q.parts[e.dev] = p
		q.dev.attach(p.cq)
		if q.opts.SolicitedOnly {
			q.dev.arm(true)
		}
		q.wakeLocked() // sleepers have to arm it
	}
	q.eps[e.index] = e
	return p.cq, nil
}

func (q *cq) newPart(dev *device) (*part, error) {
	c, fd, err := newCompletionQueue(dev.ctx, q.opts.Depth*cqShare)
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

// lookTime is how often a queue of SolicitedOnly is looked at although there is no event: software
// devices have none for requests that failed.
const lookTime = 100 * time.Millisecond

// serve turns a device's events into tokens until the watcher is closed.
func (q *cq) serve(p *part) {
	defer close(p.done)
	take := func() error {
		if takeCQEvents(p.cq) {
			return nil
		}
		return syscall.EAGAIN
	}
	for {
		if q.opts.SolicitedOnly {
			p.events.limit(lookTime)
		}
		err := p.events.read(take)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		q.mu.Lock()
		if q.opts.SolicitedOnly {
			q.ripenLocked(err == nil)
		}
		q.wakeLocked()
		q.mu.Unlock()
	}
}

// ripenLocked takes everything that is there; after an event it is to be handed out. The devices
// are armed first: what is solicited and comes later has an event of its own.
func (q *cq) ripenLocked(event bool) {
	if q.Closed() {
		return
	}
	if event {
		q.dev.arm(true)
	}
	q.drainLocked()
	if event {
		q.Ripen()
	}
}

// has tells whether a device's queue is a part of this one.
func (q *cq) has(c *cCQ) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.parts {
		if p.cq == c {
			return true
		}
	}
	return false
}

// release forgets an endpoint whose last completion has been pushed.
func (q *cq) release(e *endpoint) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forgetLocked(e)
}

// unplug gives the queue of one device back that nobody uses any more.
func (q *cq) unplug(dev *device) {
	q.mu.Lock()
	p := q.parts[dev]
	if p != nil {
		q.drainLocked()
		delete(q.parts, dev)
		q.dev.detach(p.cq)
	}
	q.mu.Unlock()
	if p != nil {
		p.free()
	}
}

// free gives a device's queue back that is polled no more.
func (p *part) free() {
	p.events.close()
	<-p.done
	_ = freeCompletionQueue(p.cq) // it fails where the device is gone
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
		p.free()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Closed() {
		q.dev.free()
	}
}

// Close leaves the devices' queues to the domain while endpoints still use them.
func (q *cq) Close() error {
	q.mu.Lock()
	if !q.Shut() {
		q.mu.Unlock()
		return nil
	}
	used := len(q.eps) > 0
	close(q.wake)
	q.mu.Unlock()
	if used {
		return nil
	}
	q.d.plug.RLock() // no device goes while it has a part of this queue
	defer q.d.plug.RUnlock()
	q.d.mu.Lock()
	delete(q.d.cqs, q)
	q.d.mu.Unlock()
	q.detach()
	return nil
}
