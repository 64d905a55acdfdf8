package sim

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// cq is a completion queue. Everything but net is guarded by net.mu. It does not spin: a waiter
// carries out work itself, and sleeps when there is none.
type cq struct {
	provider.Completions
	net    *Net
	cond   *sync.Cond
	called bool // Wake was called
}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	q := &cq{net: d.net, cond: sync.NewCond(&d.net.mu)}
	q.Open(&d.Domain, opts)
	return q
}

func (q *cq) Poll(dst []fabric.Completion) int {
	n := q.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opts.MaxDelay > 0 {
		n.stepLocked()
	}
	return q.takeLocked(dst)
}

func (q *cq) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	n := q.net
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
		if q.Closed() {
			return 0, q.ClosedErr()
		}
		if q.Ready() {
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

// Wake implements fabric.CQ.
func (q *cq) Wake() {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	q.called = true
	q.cond.Broadcast()
}

func (q *cq) Close() error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	q.Shut()
	q.cond.Broadcast()
	return nil
}

// pushLocked adds a completion. solicited: it is that of a receive whose sender asked for an event.
func (q *cq) pushLocked(c *fabric.Completion, solicited bool) {
	if q.Push(c, solicited) {
		q.cond.Broadcast()
	}
}

// takeLocked moves completions out and releases their places in the endpoint's queues.
func (q *cq) takeLocked(dst []fabric.Completion) int {
	got := q.Take(dst)
	for i := range dst[:got] {
		dst[i].EP.(*endpoint).Polled(dst[i].Op)
	}
	return got
}
