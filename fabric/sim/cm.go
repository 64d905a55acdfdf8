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
	ep   *endpoint // the dialler's end, without a peer yet
	gone bool      // the dialler gave up
	done chan error
}

// Listen takes any name that is not in use; an empty one, or one that ends in ":0", is completed.
func (c connector) Listen(name string) (fabric.Listener, error) {
	d := c.d
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.closed {
		return nil, errs.New(errs.Closed, "sim.Listen", name, nil)
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
		return nil, errs.Wrap("sim.Dial", name, err)
	}
	return k.ep, nil
}

// call joins the listener's queue.
func (c connector) call(name string, cfg fabric.EndpointConfig) (*call, error) {
	n := c.d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.d.closed {
		return nil, errs.New(errs.Closed, "sim.Dial", name, nil)
	}
	l := n.listeners[name]
	if l == nil {
		return nil, errs.Newf(errs.Disconnected, "sim.Dial", name, "nobody listens")
	}
	e, err := c.d.newEndpointLocked(cfg)
	if err != nil {
		return nil, err
	}
	k := &call{ep: e, done: make(chan error, 1)}
	l.calls = append(l.calls, k)
	l.cond.Signal()
	return k, nil
}

// hangUp gives up, unless the answer came at the same moment.
func (c connector) hangUp(ctx context.Context, k *call) error {
	c.d.net.mu.Lock()
	defer c.d.net.mu.Unlock()
	select {
	case err := <-k.done:
		return err
	default:
	}
	k.gone = true
	k.ep.discardLocked()
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
	hello := k.ep.cfg.Hello
	if hello.Version != fabric.HelloVersion {
		err := errs.Newf(errs.Version, "sim.Accept", string(l.name), "peer has %d", hello.Version)
		return nil, l.refuse(k, err)
	}
	peer, answer, err := l.domain.tokens.Admit(hello)
	if err != nil {
		return nil, l.refuse(k, err)
	}
	mine, err := cfg(peer)
	if err != nil {
		return nil, l.refuse(k, err)
	}
	mine.Hello.Token = answer
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

// refuse answers a call with the kind of an error, as far as it is told, and returns that error.
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
		k.ep.discardLocked()
		k.done <- err
	}
}

// join makes the two ends a connection.
func (l *listener) join(k *call, peer fabric.Peer, mine fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	n := l.domain.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if k.gone {
		return nil, l.gone("the peer gave up")
	}
	if l.closed || k.ep.domain.closed {
		err := l.gone("a domain or listener was closed")
		l.refuseLocked(k, err)
		return nil, err
	}
	e, err := l.answerLocked(k, mine)
	if err != nil {
		l.refuseLocked(k, errs.New(fabric.RefusalKind(err), "sim.Accept", string(l.name), nil))
		return nil, err
	}
	id, caller := n.nextNameLocked(), k.ep
	caller.peer, e.peer = e, caller
	caller.other = fabric.Peer{Hello: e.cfg.Hello}
	e.other = peer
	caller.name = fmt.Sprintf("sim %s->%s#%d", caller.domain.name, l.name, id)
	e.name = fmt.Sprintf("sim %s->%s#%d", l.name, caller.domain.name, id)
	for _, end := range []*endpoint{caller, e} {
		n.eps = append(n.eps, end)
		end.domain.eps = append(end.domain.eps, end)
	}
	k.done <- nil
	return e, nil
}

// answerLocked makes the listener's end, if both sides can live with what the other one said.
func (l *listener) answerLocked(k *call, mine fabric.EndpointConfig) (*endpoint, error) {
	e, err := l.domain.newEndpointLocked(mine)
	if err != nil {
		return nil, err
	}
	if v := e.cfg.Hello.Version; v != fabric.HelloVersion {
		err = errs.Newf(errs.Version, "sim.Accept", string(l.name), "this side has %d", v)
	} else {
		err = fabric.CheckAnswer(&k.ep.cfg.Hello, &e.cfg.Hello)
	}
	if err != nil {
		e.discardLocked()
		return nil, err
	}
	return e, nil
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

// newEndpointLocked checks cfg and sets its places in the completion queues aside.
func (d *domain) newEndpointLocked(cfg fabric.EndpointConfig) (*endpoint, error) {
	if err := fabric.CheckEndpoint(&d.caps, &cfg); err != nil {
		return nil, err
	}
	send, ok1 := cfg.SendCQ.(*cq)
	recv, ok2 := cfg.RecvCQ.(*cq)
	if !ok1 || !ok2 || send.domain != d || recv.domain != d {
		return nil, errs.Newf(errs.Invalid, "fabric.EndpointConfig", d.name, "foreign queue")
	}
	if err := send.reserveLocked(cfg.SendDepth); err != nil {
		return nil, err
	}
	if err := recv.reserveLocked(cfg.RecvDepth); err != nil {
		send.reserved -= cfg.SendDepth
		return nil, err
	}
	return &endpoint{net: d.net, domain: d, cfg: cfg}, nil
}

// discardLocked undoes newEndpointLocked for an end that never got a peer.
func (e *endpoint) discardLocked() {
	e.closed, e.dead = true, errs.Closed
	e.unreserveLocked()
}
