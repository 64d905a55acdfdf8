//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
)

// cqShare is how many entries a device's queue has for each that the user asked for. An endpoint
// with depths s and r puts at most s + r + (s + 1) + 4 completions there: those of its user, of
// grants, of the gate and of probes, and the two markers of its end. That is at most 4 * (s + r).
const cqShare = 4

// cq is a completion queue: one queue of each device that its endpoints use. Package progress
// decides who polls, and when; this file polls, sleeps and wakes. Completions that something other
// than a waiter takes from the devices, and those that no device reports, are pushed.
//
// A poller arms the devices before it sleeps; their event wakes it.
//
// A queue of CQOptions.SolicitedOnly is armed all the time, for solicited events, since a
// completion does not tell whether its message was solicited. An event makes all completions in the
// queue ready.
type cq struct {
	progress.Queue
	d     *domain
	event chan struct{} // room for one: wakes the poller

	mu    sync.Mutex // comes before the Queue's
	dev   poller
	parts map[*device]*part
	eps   map[uint32]*endpoint // by index
	last  *endpoint            // the one found last, or nil
}

// part is a queue's share of one device.
type part struct {
	cq     *cCQ
	events *watcher
	done   chan struct{} // the goroutine has ended
}

// looking is how often a spinning poller looks at its devices: many times in one call into C.
var looking = progress.Pace{Looks: 256, Polls: 4}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	q := &cq{
		d: d, event: make(chan struct{}, 1), dev: newPoller(),
		parts: map[*device]*part{}, eps: map[uint32]*endpoint{},
	}
	q.Open((*devices)(q), (*background)(q), opts, progress.Config{
		Domain: &d.Domain, Pace: looking, Spinners: &d.spinners, Watchdog: d.watchdog,
		Delivered: delivered,
	})
	return q
}

// devices is the queue as a progress.Source.
type devices cq

// Poll implements progress.Source.
func (q *devices) Poll(looks int, b *progress.Batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return (*cq)(q).takeLocked(max(looks, 1), b)
}

// Arm implements progress.Source. What came before the devices were armed has no event.
func (q *devices) Arm() bool {
	select { // an earlier event
	case <-q.event:
	default:
	}
	if q.Options().SolicitedOnly {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.Closed() {
		q.dev.arm(false)
	}
	return !(*cq)(q).takeLocked(1, nil)
}

// Sleep implements progress.Source.
func (q *devices) Sleep() { <-q.event }

// Awake implements progress.Source: an event that nobody waits for does no harm.
func (q *devices) Awake(bool) {}

// Wake implements progress.Source.
func (q *devices) Wake() {
	select {
	case q.event <- struct{}{}:
	default:
	}
}

// background is the queue while nobody polls: the devices serve the peers by themselves.
type background cq

// Prepare implements progress.Background.
func (b *background) Prepare() bool { return true }

// Start implements progress.Background.
func (b *background) Start() {}

// Yield implements progress.Background.
func (b *background) Yield(bool) bool { return true }

// Resume implements progress.Background.
func (b *background) Resume() {}

// takeLocked takes all completions of the devices, and looks up to looks times while there are
// none. It tells whether there was anything, including the provider's own requests.
func (q *cq) takeLocked(looks int, b *progress.Batch) (did bool) {
	var c fabric.Completion
	for {
		wcs := q.dev.poll(batch, looks)
		for i := range wcs {
			if q.translateLocked(&wcs[i], &c) && !b.Add(&q.Queue, &c) {
				q.Push(&c, false)
			}
		}
		did = did || len(wcs) > 0
		if looks = 1; len(wcs) < batch {
			return did
		}
	}
}

// drain takes all completions of the devices, so that silent requests release their places and the
// provider's own requests complete, although the user does not poll.
func (q *cq) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drainLocked()
}

func (q *cq) drainLocked() { q.takeLocked(1, nil) }

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
	if e == nil { // finish has completed it
		return false
	}
	if w.id&recvBit != 0 {
		return e.received(&w, c)
	}
	return e.sent(&w, c)
}

// delivered releases the places of completions in their endpoints.
func delivered(got []fabric.Completion) {
	for i := range got {
		got[i].EP.(*endpoint).Polled(got[i].Op)
	}
}

// attach adds an endpoint and returns the device's queue for it.
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
		if q.Options().SolicitedOnly {
			q.dev.arm(true)
		}
		q.Kick() // a sleeping poller has to arm it
	}
	q.eps[e.index] = e
	return p.cq, nil
}

func (q *cq) newPart(dev *device) (*part, error) {
	c, fd, err := newCompletionQueue(dev.ctx, q.Options().Depth*cqShare)
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

// lookTime is how often a queue of SolicitedOnly is polled without an event: software devices raise
// none for requests that failed.
const lookTime = 100 * time.Millisecond

// serve wakes the poller by a device's events until the watcher is closed.
func (q *cq) serve(p *part) {
	defer close(p.done)
	take := func() error {
		if takeCQEvents(p.cq) {
			return nil
		}
		return syscall.EAGAIN
	}
	for {
		if q.Options().SolicitedOnly {
			p.events.limit(lookTime)
		}
		err := p.events.read(take)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if q.Options().SolicitedOnly {
			q.takeAll(err == nil)
		} else {
			(*devices)(q).Wake()
		}
	}
}

// takeAll takes everything that the devices have; after an event all of it is ready. The devices
// are armed first: what is solicited and comes later has an event of its own.
func (q *cq) takeAll(event bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Closed() {
		return
	}
	if event {
		q.dev.arm(true)
	}
	q.drainLocked()
	if event {
		q.Queue.ReadyAll()
	}
}

// has tells whether a device's queue belongs to this one.
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

// unplug frees the queue of one device that nobody uses any more.
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

// free frees a device's queue that is not polled any more.
func (p *part) free() {
	p.events.close()
	<-p.done
	_ = freeCompletionQueue(p.cq) // it fails where the device is gone
}

// detach frees the devices' queues. Completions that they hold are pushed for the user.
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
	first := !q.Closed()
	_ = q.Queue.Close() // it does not fail
	used := len(q.eps) > 0
	q.mu.Unlock()
	if !first {
		return nil
	}
	if used {
		return nil
	}
	q.d.plug.RLock() // no device is removed while it has a part of this queue
	defer q.d.plug.RUnlock()
	q.d.mu.Lock()
	delete(q.d.cqs, q)
	q.d.mu.Unlock()
	q.detach()
	return nil
}
