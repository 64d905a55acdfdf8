package shm

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
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

	mu sync.Mutex
	provider.Completions
	sleepers int // in nap
	called   bool

	by      holder
	resting bool   // who holds the role sleeps, and the endpoints are armed
	dozing  bool   // on a futex
	watched bool   // the watch knows it
	turns   uint64 // counts every change of the role
	seen    uint64 // turns when the watch last looked
}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	q := &cq{
		d: d, opts: opts, wake: make(chan struct{}, 1),
		by: armed, // endpoints come armed
	}
	q.Open(&d.Domain, opts)
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
	n := q.Take(dst)
	q.dueLocked()
	return n
}

// dueLocked keeps due what it says.
func (q *cq) dueLocked() bool {
	due := q.Ripe() || q.called || q.Closed()
	if q.due.Load() != due {
		q.due.Store(due)
	}
	return due
}

// push adds a completion; solicited is that of a receive whose sender said so.
func (q *cq) push(c *fabric.Completion, solicited bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Push(c, solicited) {
		q.wakeLocked()
	}
}

// wakeLocked wakes somebody if there is something to take.
func (q *cq) wakeLocked() {
	if !q.dueLocked() || q.Closed() {
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
	if q.sleepers == 0 || q.Closed() {
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
		q.dueLocked()
		if q.dozing {
			q.rouseLocked()
		}
		close(q.wake)
	}
	return nil
}
