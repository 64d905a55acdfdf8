package sim

import (
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// domain is one host of the net.
type domain struct {
	net  *Net
	name string
	caps fabric.Caps

	tokens *fabric.Tokens // what its listeners ask for; nil: nothing

	// Guarded by net.mu.
	closed    bool
	eps       []*endpoint // not closed yet, in the order of their birth
	listeners []*listener // likewise
}

// Open adds a domain to the net.
func (n *Net) Open() fabric.Domain { return n.OpenTokens(nil) }

// OpenTokens adds a domain whose listeners ask for a token of these.
func (n *Net) OpenTokens(tokens *fabric.Tokens) fabric.Domain {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := &domain{
		net:    n,
		name:   fmt.Sprintf("host%d", n.nextNameLocked()),
		caps:   n.opts.Limits,
		tokens: tokens,
	}
	d.caps.AsksToken = tokens != nil
	return d
}

func (d *domain) Caps() fabric.Caps { return d.caps }

func (d *domain) Connector() fabric.Connector { return connector{d} }

func (d *domain) Register(mem []byte) (fabric.Region, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.closed {
		return nil, errs.New(errs.Closed, "sim.Register", d.name, nil)
	}
	return &region{domain: d, mem: mem, keys: map[uint64]struct{}{}}, nil
}

func (d *domain) NewCQ(opts fabric.CQOptions) (fabric.CQ, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.closed {
		return nil, errs.New(errs.Closed, "sim.NewCQ", d.name, nil)
	}
	if err := fabric.CheckCQ(opts); err != nil {
		return nil, err
	}
	return newCQ(d, opts), nil
}

func (d *domain) Close() error {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	d.closed = true
	for len(d.eps) > 0 {
		d.eps[0].closeLocked()
	}
	for len(d.listeners) > 0 {
		d.listeners[0].closeLocked()
	}
	return nil
}
