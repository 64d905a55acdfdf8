//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"net"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// connector makes the connections of a domain.
type connector struct{ d *domain }

// listener keeps the requests of peers until Accept. When its backlog is full more are refused.
type listener struct {
	provider.Listener[*caller]
	d    *domain
	conn *conn
	addr net.Addr
}

// listening is what a listener closes.
type listening struct {
	d    *domain
	conn *conn
}

func (l listening) Close() error {
	l.d.conns.drop(l.conn)
	return nil
}

// caller is a peer that has sent its hello.
type caller struct {
	conn              *conn
	hello             fabric.Hello
	gate              uint32
	readsIn, readsOut int
	err               error
}

// Listen takes an address of an RDMA device ("10.0.0.1:9400"), or an unspecified one for all.
func (c connector) Listen(addr string) (fabric.Listener, error) {
	d := c.d
	if err := d.Enter("Listen", &d.calls); err != nil {
		return nil, err
	}
	defer d.calls.Done()
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, errs.New(errs.Invalid, "verbs.Listen", addr, err)
	}
	own, err := d.newConn()
	if err != nil {
		return nil, err
	}
	l := &listener{d: d, conn: own}
	if err := l.Open(&d.Domain, listening{d, own}, func(c *caller) {
		d.turnAway(c, errs.Newf(errs.Closed, "verbs.Accept", "", "the listener was closed"))
	}); err != nil {
		return nil, err
	}
	own.mu.Lock()
	own.listener = l
	own.mu.Unlock()
	if err = bindID(own.id, at); err == nil {
		err = listenID(own.id, provider.Backlog)
	}
	if err != nil {
		_ = l.Close()
		return nil, errs.Wrap("verbs.Listen", addr, err)
	}
	l.addr, _ = idAddrs(own.id)
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// request queues a peer. It is called by serveEvents and never blocks.
func (l *listener) request(ev *cmEvent) {
	c := &caller{conn: newConn(ev.id), readsIn: ev.readsIn, readsOut: ev.readsOut}
	c.hello, c.gate, c.err = decodeHello(ev.private[:ev.privateLen])
	l.d.conns.add(c.conn)
	if !l.TrySlot() {
		l.d.turnAway(c, errs.Newf(errs.Again, "verbs.Accept", "", "too many peers wait already"))
		return
	}
	l.Ready(c)
	if l.Context().Err() != nil { // it was closed meanwhile, and may have looked before
		l.Clear()
	}
}

// turnAway refuses a peer and tells it as much of the reason as it may know.
func (d *domain) turnAway(c *caller, why error) {
	_, remote := idAddrs(c.conn.id)
	refusal := encodeRefusal(fabric.RefusalKind(why))
	_ = rejectID(c.conn.id, refusal[:]) // it may be gone
	d.conns.drop(c.conn)
	d.refusals.Warn(remote.IP.String(), "verbs: a peer was refused", "why", why)
}

func (l *listener) Accept(
	ctx context.Context, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	if err := l.d.Enter("Accept", &l.d.calls); err != nil {
		return nil, err
	}
	defer l.d.calls.Done()
	c, err := l.Next(ctx)
	if err != nil {
		return nil, err
	}
	e, err := l.welcome(c, cfg)
	if err != nil {
		return nil, errs.Wrap("verbs.Accept", l.addr.String(), err)
	}
	return e, nil
}

// welcome answers a peer's request.
func (l *listener) welcome(
	c *caller, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (*endpoint, error) {
	d := l.d
	peer, mine, err := l.admit(c, cfg)
	if err != nil {
		d.turnAway(c, err)
		return nil, err
	}
	e, err := d.meet(c, peer, mine)
	if err != nil {
		d.Unreserve(&mine)
		d.turnAway(c, err)
		return nil, err
	}
	hello := encodeHello(&e.Config.Hello, remoteKey(e.gate.mr))
	in, out := d.reads(c.readsIn, c.readsOut)
	if err := acceptID(c.conn.id, e.qp, hello[:], in, out); err != nil {
		e.Die(errs.Disconnected, "the peer gave up")
		_ = e.Close()
		return nil, errs.Newf(errs.Disconnected, "verbs", e.Name(), "the peer gave up: %w", err)
	}
	return e, nil
}

// admit finds out who the peer is and what the user makes of it. The queues are reserved then.
func (l *listener) admit(
	c *caller, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (peer fabric.Peer, mine fabric.EndpointConfig, err error) {
	if c.err != nil {
		return peer, mine, c.err
	}
	peer, answer, err := l.d.opts.Tokens.Admit(c.hello)
	if err != nil {
		return peer, mine, err
	}
	mine, err = l.d.Configure(peer, answer, cfg)
	return peer, mine, err
}

// meet makes the listener's end of a connection, ready to send and receive.
func (d *domain) meet(c *caller, peer fabric.Peer, cfg fabric.EndpointConfig) (
	*endpoint, error,
) {
	dev, err := d.deviceOf(c.conn)
	if err != nil {
		return nil, err
	}
	e, err := newEndpoint(d, dev, c.conn, cfg)
	if err != nil {
		return nil, err
	}
	in, out := d.reads(c.readsIn, c.readsOut)
	if err = e.join(peer, c.gate, in, out); err != nil {
		e.discard()
		return nil, err
	}
	return e, nil
}

// join makes an endpoint that knows its peer live.
func (e *endpoint) join(peer fabric.Peer, gate uint32, readsIn, readsOut int) error {
	e.Meet(peer)
	e.gate.peerKey = gate
	timeout := ackTimeout(e.d.opts.PeerTimeout)
	if err := readyQP(e.conn.id, e.qp, readsIn, readsOut, timeout); err != nil {
		return errs.Newf(errs.Disconnected, "verbs.connect", e.Name(), "%w", err)
	}
	if err := e.d.Adopt(&e.Endpoint, e, 1); err != nil {
		return err
	}
	e.conn.attach(e)
	return nil
}

// reads bounds the Reads that a connection may have under way, in and out.
func (d *domain) reads(in, out int) (int, int) {
	return min(in, d.Caps().ReadDepth), min(out, d.Caps().ReadDepth)
}

// deviceOf finds the device on which an address was found, and uses it.
func (d *domain) deviceOf(c *conn) (*device, error) {
	name := idDevice(c.id)
	if dev := d.deviceNamed(name); dev != nil {
		return dev, nil
	}
	return d.plugIn(name)
}

func (c connector) Dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	d := c.d
	if err := d.Enter("Dial", &d.calls); err != nil {
		return nil, err
	}
	defer d.calls.Done()
	return d.Domain.Dial(ctx, addr, func(ctx context.Context) (fabric.Endpoint, error) {
		if err := d.Reserve(&cfg); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, d.opts.DialTimeout)
		defer cancel()
		e, err := d.dial(ctx, addr, cfg)
		if err != nil {
			d.Unreserve(&cfg)
			return nil, err
		}
		return e, nil
	})
}

func (d *domain) dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	*endpoint, error,
) {
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, errs.New(errs.Invalid, "verbs.Dial", addr, err)
	}
	c, err := d.newConn()
	if err != nil {
		return nil, err
	}
	e, err := d.find(ctx, c, at, cfg)
	if err == nil {
		if err = e.call(ctx); err != nil {
			e.discard()
		}
	}
	if err != nil {
		d.conns.drop(c)
		return nil, err
	}
	if err := establishID(c.id); err != nil {
		e.Disown() // the reservation is the caller's
		e.Die(errs.Disconnected, "the peer gave up")
		_ = e.Close()
		return nil, errs.Newf(errs.Disconnected, "verbs", addr, "%w", err)
	}
	return e, nil
}

// resolveMs bounds each step of finding the way to an address.
const resolveMs = 2000

// find resolves the address and makes an endpoint on the device that leads there.
func (d *domain) find(
	ctx context.Context, c *conn, at *net.TCPAddr, cfg fabric.EndpointConfig,
) (*endpoint, error) {
	unreachable := func(err error) error {
		return errs.Newf(errs.Disconnected, "verbs", at.String(), "no RDMA device leads there: %w",
			err)
	}
	if err := resolveID(c.id, at, resolveMs); err != nil {
		return nil, unreachable(err)
	}
	if _, err := c.await(ctx, cmAddrResolved); err != nil {
		return nil, err
	}
	if err := routeID(c.id, resolveMs); err != nil {
		return nil, unreachable(err)
	}
	if _, err := c.await(ctx, cmRouteResolved); err != nil {
		return nil, err
	}
	dev, err := d.deviceOf(c)
	if err != nil {
		return nil, err
	}
	return newEndpoint(d, dev, c, cfg)
}

// call exchanges hellos with the listener and makes the endpoint live.
func (e *endpoint) call(ctx context.Context) error {
	hello, depth := encodeHello(&e.Config.Hello, remoteKey(e.gate.mr)), e.d.Caps().ReadDepth
	if err := connectID(e.conn.id, e.qp, hello[:], depth, depth); err != nil {
		return errs.Newf(errs.Disconnected, "verbs", e.Name(), "%w", err)
	}
	ev, err := e.conn.await(ctx, cmConnectResponse)
	if err != nil {
		return err
	}
	peer, gate, err := decodeHello(ev.private[:ev.privateLen])
	if err == nil { // a refusal comes another way
		err = provider.CheckAnswer(&e.Config.Hello, &peer, errs.OK)
	}
	if err != nil {
		return err
	}
	in, out := e.d.reads(depth, ev.readsOut)
	e.gate.live = true // the listener's queue pair was up before it answered
	return e.join(fabric.Peer{Hello: peer}, gate, in, out)
}
