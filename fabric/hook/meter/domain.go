package meter

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook"
)

// Domain is a domain that counts. Safe for concurrent use.
type Domain struct {
	*hook.Domain
	start time.Time

	grants, revokes atomic.Uint64

	mu     sync.Mutex
	eps    map[*endpoint]struct{} // not closed
	queues map[*queue]struct{}    // not closed
	gone   [ops]Op                // of closed endpoints
	goneQ  Queues                 // of closed queues
	links  Links
}

// New wraps a domain.
func New(inner fabric.Domain) *Domain {
	d := &Domain{
		start: time.Now(), eps: map[*endpoint]struct{}{}, queues: map[*queue]struct{}{},
	}
	d.Domain = hook.Wrap(inner, hook.Layer{
		Connected: d.connected, Endpoint: d.newEndpoint, CQ: d.newQueue, Region: d.newRegion,
		Completed: d.completed,
	})
	return d
}

// now is the time since the domain was opened, in nanoseconds.
func (d *Domain) now() int64 { return int64(time.Since(d.start)) }

// Snapshot adds everything up.
func (d *Domain) Snapshot() *Snapshot {
	s := &Snapshot{Provider: d.Caps().Provider, Age: time.Duration(d.now())}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Ops, s.Queues, s.Links = d.gone, d.goneQ, d.links
	for e := range d.eps {
		e.addTo(&s.Ops)
	}
	for q := range d.queues {
		s.Queues.add(q)
	}
	s.Links.Open, s.Queues.Open = uint64(len(d.eps)), uint64(len(d.queues))
	s.Links.Grants, s.Links.Revokes = d.grants.Load(), d.revokes.Load()
	return s
}

// Endpoints are the numbers of each open endpoint, in no order.
func (d *Domain) Endpoints() []Endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Endpoint, 0, len(d.eps))
	for e := range d.eps {
		all = append(all, Endpoint{Name: e.Name()})
		e.addTo(&all[len(all)-1].Ops)
	}
	return all
}

func (d *Domain) connected(c *hook.Connection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case c.Err == nil && c.Dialled:
		d.links.Dialled++
	case c.Err == nil:
		d.links.Accepted++
	case c.Dialled:
		d.links.DialErrors.add(c.Err)
	case !errors.Is(c.Err, errs.Closed) && !errors.Is(c.Err, context.Canceled) &&
		!errors.Is(c.Err, context.DeadlineExceeded):
		d.links.AccErrors.add(c.Err)
	}
}

// queue counts waits.
type queue struct {
	*hook.CQ
	d                          *Domain
	polls, empty, waits, wakes atomic.Uint64
	sleep                      atomic.Int64
}

func (d *Domain) newQueue(base *hook.CQ, _ fabric.CQOptions) fabric.CQ {
	q := &queue{CQ: base, d: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues[q] = struct{}{}
	return q
}

// Poll implements fabric.CQ.
func (q *queue) Poll(dst []fabric.Completion) int {
	n := q.CQ.Poll(dst)
	q.polls.Add(1)
	if n == 0 {
		q.empty.Add(1)
	}
	return n
}

// Wait implements fabric.CQ.
func (q *queue) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	start := q.d.now()
	n, err := q.CQ.Wait(ctx, dst)
	q.waits.Add(1)
	q.sleep.Add(q.d.now() - start)
	if n == 0 {
		q.wakes.Add(1)
	}
	return n, err
}

// Close implements fabric.CQ.
func (q *queue) Close() error {
	err := q.CQ.Close()
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	if _, open := q.d.queues[q]; open {
		q.d.goneQ.add(q)
		delete(q.d.queues, q)
	}
	return err
}

func (s *Queues) add(q *queue) {
	s.Polls += q.polls.Load()
	s.Empty += q.empty.Load()
	s.Waits += q.waits.Load()
	s.Wakes += q.wakes.Load()
	s.Sleep += time.Duration(q.sleep.Load())
}

// region counts grants and registered memory.
type region struct {
	*hook.Region
	d      *Domain
	closed atomic.Bool
}

func (d *Domain) newRegion(base *hook.Region) fabric.Region {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.links.Regions++
	d.links.RegionBytes += uint64(len(base.Bytes()))
	return &region{Region: base, d: d}
}

// Grant implements fabric.Region.
func (r *region) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	rem, err := r.Region.Grant(ep, off, length, rights)
	if err == nil {
		r.d.grants.Add(1)
	}
	return rem, err
}

// Revoke implements fabric.Region.
func (r *region) Revoke(rem fabric.Remote) {
	r.d.revokes.Add(1)
	r.Region.Revoke(rem)
}

// Close implements fabric.Region.
func (r *region) Close() error {
	err := r.Region.Close()
	if !r.closed.Swap(true) {
		r.d.mu.Lock()
		defer r.d.mu.Unlock()
		r.d.links.Regions--
		r.d.links.RegionBytes -= uint64(len(r.Bytes()))
	}
	return err
}
