package sim

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// connector makes the connections of a domain.
type connector struct{ d *domain }

// addr is a listener's name.
type addr string

func (addr) Network() string  { return "sim" }
func (a addr) String() string { return string(a) }

// listener has a name in the net. Its fields are guarded by net.mu.
type listener struct {
	domain *domain
	name   addr
	cond   *sync.Cond
	calls  []*call
	closed bool
}

// call is a Dial on its way: the dialler waits at done, which gets exactly one answer.
type call struct {
	from *domain
	cfg  fabric.EndpointConfig // its places are reserved
	ep   *endpoint             // the dialler's end, once there is one
	gone bool                  // the dialler gave up
	done chan error
}

// Listen takes any name that is not in use; an empty one, or one that ends in ":0", is completed.
func (c connector) Listen(name string) (fabric.Listener, error) {
	d := c.d
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if err := d.Check("Listen"); err != nil {
		return nil, err
	}
	if name == "" {
		name = d.name + ":0"
	}
	if n := len(name); n > 2 && name[n-2:] == ":0" {
		name = fmt.Sprintf("%s%d", name[:n-1], d.net.nextNameLocked())
	}
	if d.net.listeners[name] != nil {
		return nil, errs.New(errs.Exists, "sim.Listen", name, nil)
	}
	l := &listener{domain: d, name: addr(name), cond: sync.NewCond(&d.net.mu)}
	d.net.listeners[name] = l
	d.listeners = append(d.listeners, l)
	return l, nil
}

func (c connector) Dial(ctx context.Context, name string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	return c.d.Dial(ctx, name, &cfg, func(ctx context.Context) (fabric.Endpoint, error) {
		k, err := c.call(name, cfg)
		if err != nil {
			return nil, err
		}
		select {
		case err = <-k.done:
		case <-ctx.Done():
			err = c.hangUp(ctx, k)
		}
		if err != nil {
			return nil, err
		}
		return k.ep, nil
	})
}

// call joins the listener's queue.
func (c connector) call(name string, cfg fabric.EndpointConfig) (*call, error) {
	n := c.d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[name]
	if l == nil {
		return nil, errs.Newf(errs.Disconnected, "sim.Dial", name, "nobody listens")
	}
	k := &call{from: c.d, cfg: cfg, done: make(chan error, 1)}
	l.calls = append(l.calls, k)
	l.cond.Signal()
	return k, nil
}

// hangUp gives the call up, unless it was answered meanwhile.
func (c connector) hangUp(ctx context.Context, k *call) error {
	c.d.net.mu.Lock()
	defer c.d.net.mu.Unlock()
	select {
	case err := <-k.done:
		return err
	default:
	}
	k.gone = true
	return ctx.Err()
}

func (l *listener) Addr() net.Addr { return l.name }

func (l *listener) Accept(
	ctx context.Context, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	k, err := l.next(ctx)
	if err != nil {
		return nil, err
	}
	hello := k.cfg.Hello
	if hello.Version != fabric.HelloVersion {
		err := errs.Newf(errs.Version, "sim.Accept", string(l.name), "peer has %d", hello.Version)
		return nil, l.refuse(k, err)
	}
	peer, answer, err := l.domain.tokens.Admit(hello)
	if err != nil {
		return nil, l.refuse(k, err)
	}
	mine, err := l.domain.Configure(peer, answer, cfg)
	if err != nil {
		return nil, l.refuse(k, err)
	}
	return l.join(k, peer, mine)
}

// next waits for a call.
func (l *listener) next(ctx context.Context) (*call, error) {
	mu := &l.domain.net.mu
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		l.cond.Broadcast()
	})
	defer stop()
	mu.Lock()
	defer mu.Unlock()
	for {
		if l.closed {
			return nil, errs.New(errs.Closed, "sim.Accept", string(l.name), nil)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(l.calls) > 0 {
			k := l.calls[0]
			l.calls = slices.Delete(l.calls, 0, 1)
			if !k.gone {
				return k, nil
			}
			continue
		}
		l.cond.Wait()
	}
}

// refuse answers a call with the kind of an error (fabric.RefusalKind) and returns the error.
func (l *listener) refuse(k *call, err error) error {
	l.domain.net.mu.Lock()
	defer l.domain.net.mu.Unlock()
	l.refuseLocked(k, errs.Newf(fabric.RefusalKind(err), "sim.Accept", string(l.name),
		"refused by the peer"))
	return errs.Wrap("sim.Accept", string(l.name), err)
}

func (l *listener) gone(why string) error {
	return errs.Newf(errs.Disconnected, "sim.Accept", string(l.name), "%s", why)
}

func (l *listener) refuseLocked(k *call, err error) {
	if !k.gone {
		k.done <- err
	}
}

// join connects the two ends.
func (l *listener) join(k *call, peer fabric.Peer, mine fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	n := l.domain.net
	n.mu.Lock()
	defer n.mu.Unlock()
	err := l.meetLocked(k, &mine)
	if err != nil {
		l.domain.Unreserve(&mine)
		return nil, err
	}
	id, from, at := n.nextNameLocked(), k.from.name, l.name
	k.ep = k.from.newEndpoint(fmt.Sprintf("sim %s->%s#%d", from, at, id), k.cfg,
		fabric.Peer{Hello: mine.Hello})
	e := l.domain.newEndpoint(fmt.Sprintf("sim %s->%s#%d", at, from, id), mine, peer)
	k.ep.peer, e.peer = e, k.ep
	for _, end := range []*endpoint{k.ep, e} {
		n.eps = append(n.eps, end)
		end.domain.eps = append(end.domain.eps, end)
	}
	k.done <- nil
	return e, nil
}

// meetLocked tells whether both sides are still there, and the dialler takes the answer.
func (l *listener) meetLocked(k *call, mine *fabric.EndpointConfig) error {
	if k.gone {
		return l.gone("the peer gave up")
	}
	if l.closed || k.from.Check("Dial") != nil {
		err := l.gone("a domain or listener was closed")
		l.refuseLocked(k, err)
		return err
	}
	err := fabric.CheckAnswer(&k.cfg.Hello, &mine.Hello)
	if err != nil {
		l.refuseLocked(k, errs.New(fabric.RefusalKind(err), "sim.Accept", string(l.name), nil))
	}
	return err
}

func (l *listener) Close() error {
	l.domain.net.mu.Lock()
	defer l.domain.net.mu.Unlock()
	l.closeLocked()
	return nil
}

func (l *listener) closeLocked() {
	if l.closed {
		return
	}
	l.closed = true
	for _, k := range l.calls {
		l.refuseLocked(k, l.gone("nobody listens"))
	}
	l.calls = nil
	delete(l.domain.net.listeners, string(l.name))
	l.domain.listeners = without(l.domain.listeners, l)
	l.cond.Broadcast()
}
