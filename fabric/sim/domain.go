package sim

import (
	"fmt"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// domain is one host of the net. It closes endpoints and listeners in the order in which they were
// made, so that the run of a seed can be repeated; provider.Domain does not keep that order.
type domain struct {
	provider.Domain
	net    *Net
	name   string
	tokens *fabric.Tokens // that its listeners demand; nil: none

	// Guarded by net.mu.
	eps       []*endpoint // not closed yet, oldest first
	listeners []*listener // likewise
}

// Open adds a domain to the net.
func (n *Net) Open() fabric.Domain { return n.OpenTokens(nil) }

// OpenTokens adds a domain whose listeners ask for a token of these.
func (n *Net) OpenTokens(tokens *fabric.Tokens) fabric.Domain {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := &domain{net: n, name: fmt.Sprintf("host%d", n.nextNameLocked()), tokens: tokens}
	caps := n.opts.Limits
	caps.AsksToken = tokens != nil
	d.Domain.Open(caps)
	return d
}

func (d *domain) Connector() fabric.Connector { return connector{d} }

func (d *domain) Register(mem []byte) (fabric.Region, error) {
	if err := d.Check("Register"); err != nil {
		return nil, err
	}
	r := &region{net: d.net, keys: map[uint64]struct{}{}}
	r.Open(&d.Domain, mem)
	return r, nil
}

func (d *domain) NewCQ(opts fabric.CQOptions) (fabric.CQ, error) {
	if err := d.CheckQueue(opts); err != nil {
		return nil, err
	}
	return newCQ(d, opts), nil
}

func (d *domain) Close() error {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	d.Stop()
	for len(d.eps) > 0 {
		d.eps[0].closeLocked()
	}
	for len(d.listeners) > 0 {
		d.listeners[0].closeLocked()
	}
	return nil
}
