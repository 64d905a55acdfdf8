// Package provider is the bookkeeping that fabric providers have in common: what the contract of
// package fabric demands of every one of them, and what has nothing to do with how bytes move. A
// provider embeds these types in its own and adds its wire, its sockets or rings, and how it waits.
//
//	Domain       what is open: endpoints, listeners, goroutines; Dial's errors
//	Completions  the ring of a completion queue, with places reserved: it never overflows
//	Endpoint     one end's life: the first cause of its death, places held until polled
//	SendQueue    posted requests until their completion
//	RecvQueue    posted receives until a message takes them
//	Region       registered memory, and Grants: who may touch which bytes; Revoke waits
//	Listener     peers between their connect and Accept
//	hello.go     the hello on a byte stream, and what each side makes of the other's
//
// It knows no wire but the hello's, copies nothing but between a request's pieces and a ring
// (Gather, Scatter), and decides nothing about spinning, sleeping and waking: package progress
// does. Methods do not call back into a provider while they hold a lock, unless their comments say
// so.
//
// Read domain.go first, then endpoint.go and completions.go (everything that is posted completes
// exactly once), request.go and recv.go (what is posted), grant.go (memory), listen.go and hello.go
// (connecting).
package provider

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Domain is the part of a domain that knows its open endpoints and listeners. Open it before use.
// Safe for concurrent use.
type Domain struct {
	// Running counts the goroutines of the domain. Adopt and Go add to it unless the domain was
	// stopped. A living endpoint may add more: its own goroutines keep the count above zero.
	Running sync.WaitGroup

	name   string // of the provider: what errors begin with
	caps   fabric.Caps
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc

	refused atomic.Uint64

	mu        sync.Mutex // a leaf
	closed    bool
	eps       map[*Endpoint]Mortal
	listeners map[io.Closer]struct{}
}

// Mortal is an endpoint as its domain sees it.
type Mortal interface {
	// Die marks the end, and does not wait for it.
	Die(kind errs.Kind, why string)

	// Close is that of fabric.Endpoint.
	Close() error
}

// Open makes d ready.
func (d *Domain) Open(caps fabric.Caps) {
	d.name, d.caps = caps.Provider, caps
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.eps = map[*Endpoint]Mortal{}
	d.listeners = map[io.Closer]struct{}{}
}

// Caps implements fabric.Domain.
func (d *Domain) Caps() fabric.Caps { return d.caps }

// Limit replaces the caps, for a provider that asks its devices. It is called before d is shared.
func (d *Domain) Limit(caps fabric.Caps) { d.caps = caps }

// CountRefusal counts a peer that was refused, or made room for others before it was known. Accept
// does so for those that it hears of.
func (d *Domain) CountRefusal() { d.refused.Add(1) }

// Refusals implements fabric.Refuser.
func (d *Domain) Refusals() uint64 { return d.refused.Load() }

// Context ends when the domain is stopped.
func (d *Domain) Context() context.Context { return d.ctx }

// Check is nil while the domain is open, then errs.Closed.
func (d *Domain) Check(call string) error {
	if d.ctx.Err() == nil {
		return nil
	}
	return d.closedErr(call)
}

func (d *Domain) closedErr(call string) error {
	return errs.New(errs.Closed, d.name+"."+call, "", nil)
}

// CheckQueue tells whether a completion queue with these options can be made now.
func (d *Domain) CheckQueue(opts fabric.CQOptions) error {
	if err := d.Check("NewCQ"); err != nil {
		return err
	}
	return fabric.CheckCQ(opts)
}

// Adopt adds an endpoint to the domain and counts its goroutines in Running. e is the part that all
// embeds. It is errs.Closed when the domain was stopped meanwhile.
func (d *Domain) Adopt(e *Endpoint, all Mortal, goroutines int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.closedErr("connect")
	}
	d.eps[e] = all
	d.Running.Add(goroutines)
	return nil
}

func (d *Domain) forget(e *Endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.eps, e)
}

// Endpoints returns those that were adopted and not closed.
func (d *Domain) Endpoints() []Mortal {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.eps))
}

// Enter adds a call to calls. It is errs.Closed when the domain was stopped: then the call must not
// begin.
func (d *Domain) Enter(call string, calls *sync.WaitGroup) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.closedErr(call)
	}
	calls.Add(1)
	return nil
}

// Go runs f in a goroutine that is counted in Running. It is false when the domain was stopped.
func (d *Domain) Go(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.Running.Go(f)
	}
	return !d.closed
}

// adoptListener has l closed with the domain.
func (d *Domain) adoptListener(l io.Closer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.closedErr("Listen")
	}
	d.listeners[l] = struct{}{}
	return nil
}

func (d *Domain) forgetListener(l io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.listeners, l)
}

// Stop ends every listener and endpoint. It does not wait for Running.
func (d *Domain) Stop() {
	d.mu.Lock()
	d.closed = true
	eps := slices.Collect(maps.Values(d.eps))
	listeners := slices.Collect(maps.Keys(d.listeners))
	d.mu.Unlock()
	d.cancel()
	for _, l := range listeners {
		_ = l.Close()
	}
	for _, e := range eps { // all at once, so that their ends do not wait for each other
		e.Die(errs.Closed, "closed by this side")
	}
	for _, e := range eps {
		_ = e.Close()
	}
}

// Close implements fabric.Domain.
func (d *Domain) Close() error {
	d.Stop()
	d.Running.Wait()
	return nil
}

// Dial reserves the places of cfg and runs dial, under a context that ends with the caller's or
// with the domain. If dial fails, the error is the one that the contract promises and the places
// are released. dial disowns an endpoint that it made and cannot return.
func (d *Domain) Dial(
	ctx context.Context, addr string, cfg *fabric.EndpointConfig,
	dial func(context.Context) (fabric.Endpoint, error),
) (fabric.Endpoint, error) {
	if err := d.Check("Dial"); err != nil {
		return nil, err
	}
	if err := d.Reserve(cfg); err != nil {
		return nil, errs.Wrap(d.name+".Dial", addr, err)
	}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	e, err := dial(bounded)
	if err == nil {
		return e, nil
	}
	d.Unreserve(cfg)
	switch {
	case d.ctx.Err() != nil:
		err = d.closedErr("Dial")
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	return nil, errs.Wrap(d.name+".Dial", addr, err)
}
