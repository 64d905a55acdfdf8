package fabric

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Verbs is the provider whose ceilings are perftest, not plain TCP.
const Verbs = "verbs"

// Provider is one at both ends: a domain here, and the other process that serves the same provider.
// It is opened when it is first used.
type Provider struct {
	Name    string
	Open    partner.Opener
	Control string // where the other process runs partner.Serve with Jobs
	Metered bool   // a meter stands before the provider, at both ends

	conn   *partner.Conn
	domain partner.Domain
	addr   string // of the other process
}

func (p *Provider) rdma() bool { return p.Name == Verbs }

func (p *Provider) open(ctx context.Context) (err error) {
	if p.addr != "" {
		return nil
	}
	if p.conn, err = partner.Dial(ctx, p.Control); err != nil {
		return err
	}
	var addr string
	if err = p.conn.Ask(doFabric, fabricArgs{p.Name, p.Metered}, &addr); err != nil {
		return err
	}
	open := p.Open
	if p.Metered {
		open = open.Metered
	}
	if p.domain, err = open(p.Name); err == nil {
		p.addr = addr
	}
	return err
}

// Close ends both ends.
func (p *Provider) Close() error {
	var err error
	if p.domain.Domain != nil {
		err = p.domain.Domain.Close()
	}
	return errors.Join(err, p.conn.Close())
}

// OpenMax bounds how long connecting to the other process may take.
const OpenMax = 8 * time.Second

// link is a connection to the peer for one contender. It is opened when it is first used and lives
// as long as its case.
type link struct {
	p         *Provider
	role      role
	dataBytes int // at least the role's
	*end
	remote fabric.Remote // modeMemory
	inline int           // bytes that a send may carry in itself
}

func (l *link) open(ctx context.Context) error {
	if l.end != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, OpenMax)
	defer cancel()
	if err := l.p.open(ctx); err != nil {
		return err
	}
	e, err := newEnd(l.p.domain.Domain, l.role, max(l.dataBytes, l.role.size))
	if err != nil {
		return err
	}
	l.end, l.inline = e, l.p.domain.Domain.Caps().MaxInline
	ep, err := l.p.domain.Domain.Connector().Dial(ctx, l.p.addr, e.config())
	if err != nil {
		return err
	}
	if err := e.start(ep); err != nil || l.role.mode != modeMemory {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = ep.Close() }) // ends the wait
	got, err := e.await()
	if !stop() {
		return errs.Newf(errs.TimedOut, "bench", l.p.Name, "the peer granted nothing in time")
	}
	if err != nil {
		return err
	}
	if got[0].Op != fabric.OpRecv || got[0].Len != GrantBytes {
		return errs.Newf(errs.Protocol, "bench", l.p.Name, "the peer granted nothing")
	}
	l.remote = GetRemote(e.slots[got[0].Context])
	return nil
}

func (l *link) close() error {
	if l.end == nil {
		return nil
	}
	return l.end.undo.Close()
}

// contender runs a measurement once the link is open. One whose device fails is left out, and the
// others are not.
func (l *link) contender(depth int, measure bench.Measure) bench.Contender {
	return bench.Contender{Provider: l.p.Name, Depth: depth, Optional: l.p.rdma(), Close: l.close,
		Measure: func(ctx context.Context, d time.Duration) (bench.Result, error) {
			if err := l.open(ctx); err != nil {
				return bench.Result{}, err
			}
			return measure(ctx, d)
		}}
}
