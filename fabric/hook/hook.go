// Package hook is what the hooks of the fabric share: it wraps a domain, and everything that comes
// out of it, once, so that each hook states only what it changes. A hook takes a fabric.Domain and
// is one, so hooks stack on any provider and on each other, in any order:
//
//	meter  counts operations, bytes, errors and times
//	fault  breaks and refuses what the contract allows to break and to be refused
//
// What this package does: regions, queues and endpoints of the wrapped domain are unwrapped when
// they are handed down (Sge.Reg, Recv.Reg, EndpointConfig, Grant) and completions name the wrapped
// endpoint when they come up. Things of other domains are handed down as they are, so that the
// provider refuses them. An operation costs a lock of its endpoint and a copy of the request, and
// no allocation.
//
// It changes nothing by itself and starts no goroutines.
//
// Read this file first, then endpoint.go and queue.go; pending.go matches completions with posts,
// for the hooks that need it.
package hook

import (
	"sync"

	"github.com/sluice-storage/sluice/fabric"
)

// Layer is what a hook changes. Every field may be nil: then that is passed through.
type Layer struct {
	// Register is asked before memory is registered; its error refuses it.
	Register func(mem []byte) error

	// Connect is asked before a connection is made: by a dialler first of all, by a listener when
	// the peer is known and this side's configuration too. Its error refuses the connection.
	Connect func(c *Connection) error

	// Connected is told the outcome of every Dial and Accept, of the refused ones too.
	Connected func(c *Connection)

	// Endpoint, CQ and Region make the hook's own of what was just made: a type that embeds the
	// argument, overrides some methods and calls the argument's for the work itself.
	Endpoint func(e *Endpoint, cfg fabric.EndpointConfig) fabric.Endpoint
	CQ       func(q *CQ, opts fabric.CQOptions) fabric.CQ
	Region   func(r *Region) fabric.Region

	// Completed is shown the completions that Poll or Wait is about to return, and may change
	// them. EP is the hook's endpoint, or (see retiredMax) the inner one.
	Completed func(batch []fabric.Completion)
}

// Connection is one Dial or Accept.
type Connection struct {
	Dialled bool
	Addr    string // dialled, or listened on

	// Config is this side's. Asked tells whether it got that far: a listener asks for it when the
	// peer is known.
	Config fabric.EndpointConfig
	Asked  bool

	EP  fabric.Endpoint // nil when it failed, and why
	Err error

	Note any // the hook's own, from Connect to Connected
}

// retiredMax is how many closed endpoints of a domain, of which it is not certain that their last
// completion was polled, are remembered. Requests that succeed silently cannot be told from those
// whose failure was not polled yet; without a bound a domain that reconnects for ever would grow
// for ever. A completion of an endpoint that was closed before that many others names the inner
// endpoint.
const retiredMax = 128

// Domain is a wrapped domain. Safe for concurrent use.
type Domain struct {
	inner fabric.Domain
	layer Layer
	eps   sync.Map // inner endpoint to the hook's

	mu      sync.Mutex
	retired []*Endpoint // closed endpoints, see retiredMax
	next    int         // the place of the next one, when all are used
}

// Wrap puts a layer around a domain.
func Wrap(inner fabric.Domain, layer Layer) *Domain {
	return &Domain{inner: inner, layer: layer}
}

// Inner is the domain below.
func (d *Domain) Inner() fabric.Domain { return d.inner }

// Caps implements fabric.Domain.
func (d *Domain) Caps() fabric.Caps { return d.inner.Caps() }

// Register implements fabric.Domain.
func (d *Domain) Register(mem []byte) (fabric.Region, error) {
	if d.layer.Register != nil {
		if err := d.layer.Register(mem); err != nil {
			return nil, err
		}
	}
	inner, err := d.inner.Register(mem)
	if err != nil {
		return nil, err
	}
	r := &Region{dom: d, inner: inner}
	if d.layer.Region != nil {
		return d.layer.Region(r), nil
	}
	return r, nil
}

// Connector implements fabric.Domain.
func (d *Domain) Connector() fabric.Connector { return connector{d} }

// Close implements fabric.Domain.
func (d *Domain) Close() error { return d.inner.Close() }

// retire remembers a closed endpoint and forgets the oldest of too many.
func (d *Domain) retire(e *Endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.retired) < retiredMax {
		d.retired = append(d.retired, e)
		return
	}
	d.eps.Delete(d.retired[d.next].inner)
	d.retired[d.next] = e
	d.next = (d.next + 1) % retiredMax
}

// adopt wraps a connected endpoint.
func (d *Domain) adopt(inner fabric.Endpoint, cfg fabric.EndpointConfig) fabric.Endpoint {
	e := &Endpoint{dom: d, inner: inner, depth: max(cfg.SendDepth, cfg.RecvDepth)}
	var outer fabric.Endpoint = e
	if d.layer.Endpoint != nil {
		outer = d.layer.Endpoint(e, cfg)
	}
	d.eps.Store(inner, known{e, outer})
	return outer
}

// known is an endpoint that completions may name.
type known struct {
	base  *Endpoint
	outer fabric.Endpoint
}

// translate puts the hook's endpoints into completions.
func (d *Domain) translate(batch []fabric.Completion) {
	var last fabric.Endpoint
	var k known
	for i := range batch {
		if inner := batch[i].EP; inner != last {
			found, ok := d.eps.Load(inner)
			if !ok {
				continue
			}
			last, k = inner, found.(known)
		}
		batch[i].EP = k.outer
		k.base.settle()
	}
	if d.layer.Completed != nil && len(batch) > 0 {
		d.layer.Completed(batch)
	}
}
