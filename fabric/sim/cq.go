package sim

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// cq is a completion queue. Everything but domain and opts is guarded by net.mu. It never spins:
// whoever waits carries work out himself, and sleeps when there is none.
type cq struct {
	domain *domain
	opts   fabric.CQOptions

	cond     *sync.Cond
	reserved int // sum of the depths of the endpoints that still can fill it
	entries  []fabric.Completion
	ripe     int // how many of the entries Wait hands out; all unless opts.SolicitedOnly
	closed   bool
	called   bool // Wake was called
}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	return &cq{domain: d, opts: opts, cond: sync.NewCond(&d.net.mu)}
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
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			q.cond.Broadcast()
		})()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if q.closed {
			return 0, errs.New(errs.Closed, "sim.Wait", q.domain.name, nil)
		}
		if q.ripe > 0 {
			return q.takeLocked(dst), nil
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
	q.entries, q.ripe = nil, 0
	q.cond.Broadcast()
	return nil
}

// reserveLocked sets room for an endpoint's completions aside.
func (q *cq) reserveLocked(depth int) error {
	switch {
	case q.closed:
		return errs.New(errs.Closed, "sim.CQ", q.domain.name, nil)
	case depth > q.opts.Depth-q.reserved:
		return errs.Newf(errs.Invalid, "sim.CQ", q.domain.name,
			"depth %d is too small: %d taken, %d more wanted", q.opts.Depth, q.reserved, depth)
	}
	q.reserved += depth
	return nil
}

// pushLocked adds a completion. urgent ones, solicited receives and failures, wake a queue that
// waits for nothing else, and take everything before them along.
func (q *cq) pushLocked(c fabric.Completion, urgent bool) {
	if q.closed {
		return
	}
	invariant.Check(len(q.entries) < q.opts.Depth, "sim: completion queue overflow")
	q.entries = append(q.entries, c)
	if urgent || !q.opts.SolicitedOnly {
		q.ripe = len(q.entries)
		q.cond.Broadcast()
	}
}

// takeLocked hands completions out and gives their places in the endpoint's queues back.
func (q *cq) takeLocked(dst []fabric.Completion) int {
	got := copy(dst, q.entries)
	q.entries = q.entries[:copy(q.entries, q.entries[got:])]
	q.ripe = max(0, q.ripe-got)
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
