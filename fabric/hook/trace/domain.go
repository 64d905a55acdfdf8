package trace

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook"
)

// Domain is a domain whose events are remembered. Safe for concurrent use.
type Domain struct {
	*hook.Domain
	rec    recorder
	serial atomic.Uint64 // endpoints ever
}

// New wraps a domain.
func New(inner fabric.Domain, opts Options) (*Domain, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	d := &Domain{rec: recorder{
		log: opts.Log, clock: opts.Clock, events: make([]Event, opts.Events),
	}}
	d.Domain = hook.Wrap(inner, hook.Layer{
		Connected: d.connected, Endpoint: d.newEndpoint, Region: d.newRegion, Completed: d.completed,
	})
	return d, nil
}

// Events are the last events, oldest first; lost is how many there were before.
func (d *Domain) Events() (events []Event, lost uint64) { return d.rec.last() }

// Register implements fabric.Domain.
func (d *Domain) Register(mem []byte) (fabric.Region, error) {
	r, err := d.Domain.Register(mem)
	d.rec.record(Event{Kind: Register, Len: int64(len(mem)), Err: errs.KindOf(err)})
	return r, err
}

// connected records a Dial or Accept, unless it is an Accept that nobody called.
func (d *Domain) connected(c *hook.Connection) {
	ev := Event{Kind: Accept, Name: c.Addr, Err: errs.KindOf(c.Err)}
	if c.Dialled {
		ev.Kind = Dial
	}
	if e, ok := c.EP.(*endpoint); ok {
		ev.Name, ev.serial = e.Name(), e.serial
	}
	unheard := ev.Err == errs.Closed || errors.Is(c.Err, context.Canceled) ||
		errors.Is(c.Err, context.DeadlineExceeded)
	if c.Dialled || c.Asked || !unheard {
		d.rec.record(ev)
	}
}

// endpoint records posts and ends.
type endpoint struct {
	*hook.Endpoint
	d      *Domain
	name   string
	serial uint64
	over   atomic.Bool // its end is recorded

	// mu is held from a post until it is recorded, so that its completion is recorded later.
	mu sync.Mutex
}

func (d *Domain) newEndpoint(base *hook.Endpoint, _ fabric.EndpointConfig) fabric.Endpoint {
	return &endpoint{Endpoint: base, d: d, name: base.Name(), serial: d.serial.Add(1)}
}

// Post implements fabric.Endpoint.
func (e *endpoint) Post(wrs []fabric.WR) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.d.rec.clock()
	err := e.Endpoint.Post(wrs)
	for i := range wrs {
		e.d.rec.record(Event{
			At: at, Kind: Post, Op: wrs[i].Op, Flags: wrs[i].Flags, Err: errs.KindOf(err),
			Len: int64(wrs[i].Len()), Context: wrs[i].Context, Name: e.name, serial: e.serial,
		})
	}
	e.died(errs.KindOf(err))
	return err
}

// PostRecv implements fabric.Endpoint.
func (e *endpoint) PostRecv(recvs []fabric.Recv) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.d.rec.clock()
	err := e.Endpoint.PostRecv(recvs)
	for i := range recvs {
		e.d.rec.record(Event{
			At: at, Kind: Post, Op: fabric.OpRecv, Err: errs.KindOf(err),
			Len: int64(len(recvs[i].Buf)), Context: recvs[i].Context,
			Name: e.name, serial: e.serial,
		})
	}
	e.died(errs.KindOf(err))
	return err
}

// died records the end of a connection when the first error tells of it.
func (e *endpoint) died(kind errs.Kind) {
	switch kind {
	case errs.OK, errs.Perm, errs.Again, errs.Invalid:
		return
	}
	if !e.over.Swap(true) {
		e.d.rec.record(Event{Kind: Death, Err: kind, Name: e.name, serial: e.serial})
	}
}

// Close implements fabric.Endpoint.
func (e *endpoint) Close() error {
	e.over.Store(true)
	e.d.rec.record(Event{Kind: Close, Name: e.name, serial: e.serial})
	return e.Endpoint.Close()
}

func (d *Domain) completed(batch []fabric.Completion) {
	at := d.rec.clock()
	for i := range batch {
		c := &batch[i]
		ev := Event{
			At: at, Kind: Complete, Op: c.Op, Err: c.ErrKind(), Len: int64(c.Len),
			Context: c.Context,
		}
		if c.Err != nil {
			ev.Len = 0 // it means nothing
		}
		if e, ok := c.EP.(*endpoint); ok {
			e.completed(ev)
		} else {
			d.rec.record(ev)
		}
	}
}

func (e *endpoint) completed(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ev.Name, ev.serial = e.name, e.serial
	e.d.rec.record(ev)
	e.died(ev.Err)
}

// region records grants.
type region struct {
	*hook.Region
	d *Domain
}

func (d *Domain) newRegion(r *hook.Region) fabric.Region { return &region{r, d} }

// Grant implements fabric.Region.
func (r *region) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	rem, err := r.Region.Grant(ep, off, length, rights)
	ev := Event{Kind: Grant, Len: int64(length), Context: rem.Key, Err: errs.KindOf(err)}
	if e, ok := ep.(*endpoint); ok {
		ev.Name, ev.serial = e.name, e.serial
	}
	r.d.rec.record(ev)
	return rem, err
}

// Revoke implements fabric.Region. It records when the grant has ended.
func (r *region) Revoke(rem fabric.Remote) {
	r.Region.Revoke(rem)
	r.d.rec.record(Event{Kind: Revoke, Len: int64(rem.Len), Context: rem.Key})
}
