package sim

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// cq is a completion queue. Everything but domain and depth is guarded by net.mu.
type cq struct {
	domain *domain
	depth  int

	cond     *sync.Cond
	reserved int // sum of the depths of the endpoints that still can fill it
	entries  []fabric.Completion
	closed   bool
	called   bool // Wake was called
}

func newCQ(d *domain, depth int) *cq {
	return &cq{domain: d, depth: depth, cond: sync.NewCond(&d.net.mu)}
}

func (q *cq) Poll(dst []fabric.Completion) int {
	n := q.domain.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opts.MaxDelay > 0 {
		n.stepLocked()
	}
	return q.takeLocked(dst)
}

func (q *cq) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	n := q.domain.net
	invariant.Check(len(dst) > 0, "CQ.Wait without room for a completion")
	stop := context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		q.cond.Broadcast()
	})
	defer stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if q.closed {
			return 0, errs.New(errs.Closed, "sim.Wait", q.domain.name, nil)
		}
		if got := q.takeLocked(dst); got > 0 {
			return got, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if q.called {
			q.called = false
			return 0, nil
		}
		if n.stepLocked() {
			continue
		}
		n.waiting[q]++
		q.cond.Wait()
		if n.waiting[q]--; n.waiting[q] == 0 {
			delete(n.waiting, q)
		}
	}
}

// Wake implements fabric.Waker.
func (q *cq) Wake() {
	q.domain.net.mu.Lock()
	defer q.domain.net.mu.Unlock()
	q.called = true
	q.cond.Broadcast()
}

func (q *cq) Close() error {
	q.domain.net.mu.Lock()
	defer q.domain.net.mu.Unlock()
	q.closed = true
	q.entries = nil
	q.cond.Broadcast()
	return nil
}

// reserveLocked sets room for an endpoint's completions aside.
func (q *cq) reserveLocked(depth int) error {
	switch {
	case q.closed:
		return errs.New(errs.Closed, "sim.CQ", q.domain.name, nil)
	case depth > q.depth-q.reserved:
		return errs.Newf(errs.Invalid, "sim.CQ", q.domain.name,
			"depth %d is too small: %d taken, %d more wanted", q.depth, q.reserved, depth)
	}
	q.reserved += depth
	return nil
}

func (q *cq) pushLocked(c fabric.Completion) {
	if q.closed {
		return
	}
	invariant.Check(len(q.entries) < q.depth, "sim: completion queue overflow")
	q.entries = append(q.entries, c)
	q.cond.Broadcast()
}

// takeLocked hands completions out and gives their places in the endpoint's queues back.
func (q *cq) takeLocked(dst []fabric.Completion) int {
	got := copy(dst, q.entries)
	q.entries = q.entries[:copy(q.entries, q.entries[got:])]
	for i := range dst[:got] {
		e := dst[i].EP.(*endpoint)
		if dst[i].Op == fabric.OpRecv {
			e.recvHeld--
		} else {
			e.sendHeld--
		}
		e.unreserveLocked()
	}
	return got
}
