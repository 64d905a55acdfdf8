package shm

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/ring"
)

// cq is a completion queue. Who waits in it is told in wait.go.
type cq struct {
	d    *domain
	opts fabric.CQOptions
	wake chan struct{}               // holds one token; closed by Close
	eps  atomic.Pointer[[]*endpoint] // that fill it; replaced, never changed
	bell atomic.Uint32               // the futex by which this process wakes its own sleeper
	due  atomic.Bool                 // Wait would return at once
	list []futexWaiter               // of who holds the role
	hand hand                        // likewise
	brisk

	mu       sync.Mutex
	entries  ring.Ring[entry]
	rings    int // of the entries, those that end a Wait
	reserved int // sum of the depths of the endpoints that still can fill it
	sleepers int // in nap
	called   bool
	closed   bool

	by      holder
	resting bool   // who holds the role sleeps, and the endpoints are armed
	dozing  bool   // on a futex
	watched bool   // the watch knows it
	turns   uint64 // counts every change of the role
	seen    uint64 // turns when the watch last looked
}

// entry is a completion; rings tells whether it ends a Wait.
type entry struct {
	fabric.Completion
	rings bool
}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	q := &cq{
		d: d, opts: opts, wake: make(chan struct{}, 1), entries: ring.New[entry](opts.Depth),
		by: armed, // endpoints come armed
	}
	q.eps.Store(&[]*endpoint{})
	return q
}

func (q *cq) attach(e *endpoint) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := *q.eps.Load()
	list := make([]*endpoint, 0, len(old)+1)
	for _, other := range old {
		if other == e {
			return
		}
		list = append(list, other)
	}
	list = append(list, e)
	q.eps.Store(&list)
}

func (q *cq) detach(e *endpoint) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []*endpoint
	for _, other := range *q.eps.Load() {
		if other != e {
			list = append(list, other)
		}
	}
	q.eps.Store(&list)
}

// takeLocked moves completions out.
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
	q.dueLocked()
	return n
}

// dueLocked keeps due what it says.
func (q *cq) dueLocked() bool {
	due := q.rings > 0 || q.called || q.closed
	if q.due.Load() != due {
		q.due.Store(due)
	}
	return due
}

// push adds a completion; solicited is that of a receive whose sender said so.
func (q *cq) push(c *fabric.Completion, solicited bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	invariant.Check(!q.entries.Full(), "shm: completion queue overflow")
	e := entry{Completion: *c, rings: solicited || c.Err != nil || !q.opts.SolicitedOnly}
	q.entries.Push(e)
	if e.rings {
		q.rings++
		q.wakeLocked()
	}
}

// wakeLocked wakes somebody if there is something to take.
func (q *cq) wakeLocked() {
	if !q.dueLocked() || q.closed {
		return
	}
	if q.dozing {
		q.rouseLocked()
		return
	}
	q.tokenLocked()
}

// rouseLocked wakes who sleeps on a futex.
func (q *cq) rouseLocked() {
	q.dozing = false // once is enough
	q.bell.Add(1)
	futexWake(&q.bell, true)
}

// tokenLocked wakes one of those who nap.
func (q *cq) tokenLocked() {
	if q.sleepers == 0 || q.closed {
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
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
		q.dueLocked()
		if q.dozing {
			q.rouseLocked()
		}
		q.entries = ring.Ring[entry]{}
		close(q.wake)
	}
	return nil
}

// reserve sets room for an endpoint's completions aside.
func (q *cq) reserve(depth int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed("shm.CQ")
	}
	if size := q.entries.Cap(); depth > size-q.reserved {
		return errs.Newf(errs.Invalid, "shm.CQ", "",
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
