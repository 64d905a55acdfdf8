package msg

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-storage/sluice/errs"
)

// Resolver finds the endpoints of a service: addresses as Dial takes them, best first. It is asked
// before each attempt to connect, so that a service may move. Safe for concurrent use.
type Resolver interface {
	Resolve(ctx context.Context, service string) ([]string, error)
}

// Table is a Resolver that knows its answers. It must not be changed while it is used.
type Table map[string][]string

// Resolve implements Resolver. An unknown service is errs.NotFound.
func (t Table) Resolve(_ context.Context, service string) ([]string, error) {
	if all := t[service]; len(all) > 0 {
		return all, nil
	}
	return nil, errs.Newf(errs.NotFound, "msg.Resolve", service, "no such service")
}

// maxEndpoints is how many endpoints of a service are tried in one attempt.
const maxEndpoints = 16

// Names keeps one live connection per service, made on demand and shared by all callers, as Pool
// does per id. Of several endpoints the one that worked last is tried first. Safe for concurrent
// use.
type Names struct {
	peers[string]
	resolver Resolver

	goodMu sync.Mutex
	good   map[string]string // endpoint that worked last, by service
}

// NewNames makes connections of n to the services that r knows.
func NewNames(n *Node, r Resolver) *Names {
	x := &Names{resolver: r, good: map[string]string{}}
	x.peers.init(n, x.connect, func(service string) string { return service })
	return x
}

func (x *Names) connect(ctx context.Context, service string) (*Conn, error) {
	all, err := x.resolver.Resolve(ctx, service)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errs.Newf(errs.NotFound, "msg.Resolve", service, "it has no endpoints")
	}
	var failed []error
	for _, addr := range x.order(service, all[:min(len(all), maxEndpoints)]) {
		c, err := x.node.dialWithin(ctx, addr)
		if err == nil {
			x.goodMu.Lock()
			x.good[service] = addr
			x.goodMu.Unlock()
			return c, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errs.New(errs.KindOf(failed[len(failed)-1]), "msg.Get", service,
		errors.Join(failed...))
}

// order puts the endpoint that worked last before the others.
func (x *Names) order(service string, all []string) []string {
	x.goodMu.Lock()
	good := x.good[service]
	x.goodMu.Unlock()
	ordered := make([]string, 0, len(all))
	for _, addr := range all {
		if addr == good {
			ordered = append(ordered, addr)
		}
	}
	for _, addr := range all {
		if addr != good {
			ordered = append(ordered, addr)
		}
	}
	return ordered
}
