package provider

import (
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/ring"
)

// Completions is the part of a completion queue that holds completions. Each endpoint reserves a
// place for everything that it may have posted and not polled (Reserve), before it is made; so
// there is always room, and a Push never fails.
//
// A completion is ready when it, or one behind it, ends a Wait: all are, unless the queue waits for
// solicited ones only. The provider's queue adds Poll, Wait, Wake and Close, and calls all methods
// under its own lock, except those that say that they need none.
type Completions struct {
	of            *Domain
	solicitedOnly bool
	reserved      atomic.Int64 // sum of the depths of the endpoints that can still fill it
	closed        atomic.Bool

	ring  ring.Ring[fabric.Completion]
	ready int // how many completions of the ring are ready
}

// Open makes an empty queue.
func (q *Completions) Open(of *Domain, opts fabric.CQOptions) {
	q.of, q.solicitedOnly = of, opts.SolicitedOnly
	q.ring = ring.New[fabric.Completion](opts.Depth)
}

// Push adds a completion. solicited: it is that of a receive whose sender asked for an event. It
// tells whether the completion ends a Wait. A closed queue drops it.
func (q *Completions) Push(c *fabric.Completion, solicited bool) (ready bool) {
	if q.closed.Load() {
		return false
	}
	invariant.Check(!q.ring.Full(), "completion queue overflow")
	q.ring.Push(*c)
	if solicited || c.Err != nil || !q.solicitedOnly {
		q.ready = q.ring.Len()
		return true
	}
	return false
}

// Take moves completions out, oldest first, ready or not. The caller tells their endpoints
// (Endpoint.Polled) when it has let go of the queue's lock.
func (q *Completions) Take(dst []fabric.Completion) int {
	n := 0
	for n < len(dst) && q.ring.Len() > 0 {
		dst[n] = q.ring.Pop()
		n++
	}
	q.ready = max(0, q.ready-n)
	return n
}

// Ripe tells whether there is something that ends a Wait.
func (q *Completions) Ready() bool { return q.ready > 0 }

// ReadyAll makes everything in the queue ready, for a device that tells of solicited messages
// only after their completions.
func (q *Completions) ReadyAll() { q.ready = q.ring.Len() }

// Shut drops what is there and takes no more. It is false when it was shut before.
func (q *Completions) Shut() bool {
	if q.closed.Swap(true) {
		return false
	}
	q.ring, q.ready = ring.Ring[fabric.Completion]{}, 0
	return true
}

// Closed tells whether the queue is shut. It needs no lock.
func (q *Completions) Closed() bool { return q.closed.Load() }

// ClosedErr is what a waiter of a closed queue gets.
func (q *Completions) ClosedErr() error { return q.of.closedErr("Wait") }

// reserve takes places for an endpoint's completions. It needs no lock.
func (q *Completions) reserve(depth int) error {
	if q.closed.Load() {
		return q.of.closedErr("CQ")
	}
	size := int64(q.ring.Cap())
	if taken := q.reserved.Add(int64(depth)); taken > size {
		q.reserved.Add(-int64(depth))
		return errs.Newf(errs.Invalid, q.of.name+".CQ", "",
			"depth %d is too small: %d taken, %d more wanted", size, taken-int64(depth), depth)
	}
	return nil
}

func (q *Completions) unreserve(depth int) { q.reserved.Add(-int64(depth)) }

// completions returns the part that a provider's queue embeds.
func (q *Completions) completions() *Completions { return q }

// queueOf returns the embedded part of a queue of d, or nil.
func (d *Domain) queueOf(cq fabric.CQ) *Completions {
	if own, ok := cq.(interface{ completions() *Completions }); ok && own.completions().of == d {
		return own.completions()
	}
	return nil
}

// Reserve checks cfg, fills in its hello and reserves its places in the completion queues.
// Unreserve releases them if no endpoint is made; else the endpoint does.
func (d *Domain) Reserve(cfg *fabric.EndpointConfig) error {
	if err := fabric.CheckEndpoint(&d.caps, cfg); err != nil {
		return err
	}
	send, recv := d.queueOf(cfg.SendCQ), d.queueOf(cfg.RecvCQ)
	if send == nil || recv == nil {
		return errs.Newf(errs.Invalid, "fabric.EndpointConfig", "", "a queue of another domain")
	}
	if err := send.reserve(cfg.SendDepth); err != nil {
		return err
	}
	if err := recv.reserve(cfg.RecvDepth); err != nil {
		send.unreserve(cfg.SendDepth)
		return err
	}
	return nil
}

// Unreserve releases the places of Reserve.
func (d *Domain) Unreserve(cfg *fabric.EndpointConfig) {
	d.queueOf(cfg.SendCQ).unreserve(cfg.SendDepth)
	d.queueOf(cfg.RecvCQ).unreserve(cfg.RecvDepth)
}
