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

// listener queues the connection requests of peers for Accept. When its backlog is full more are
// refused.
type listener struct {
	provider.Listener[*caller]
	d    *domain
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
	provider.Met
	d                 *domain
	conn              *conn
	name              string // of its host
	gate              uint32
	readsIn, readsOut int
}

// Name implements provider.Caller.
func (c *caller) Name() string { return c.name }

// Close implements provider.Caller.
func (c *caller) Close() error {
	c.Refuse(errs.Newf(errs.Closed, "verbs.Accept", "", "the listener was closed"))
	return nil
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
	l := &listener{d: d}
	l.Open(&d.Domain, listening{d, own})
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
	if err := l.Adopt(); err != nil { // not before: Close frees the id
		return nil, err
	}
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// request queues a peer. It is called by serveEvents and never blocks.
func (l *listener) request(ev *cmEvent) {
	c := &caller{d: l.d, conn: newConn(ev.id), readsIn: ev.readsIn, readsOut: ev.readsOut}
	_, remote := idAddrs(ev.id)
	c.name = remote.IP.String()
	l.d.conns.add(c.conn)
	if !l.TrySlot() {
		l.d.CountRefusal()
		c.Refuse(errs.Newf(errs.Again, "verbs.Accept", "", "too many peers wait already"))
		return
	}
	var h fabric.Hello
	h, c.gate, c.Err = decodeHello(ev.private[:ev.privateLen])
	if c.Err == nil {
		c.Peer, c.Answer, c.Err = l.d.opts.Tokens.Admit(h)
	}
	l.Ready(c)
	if l.Context().Err() != nil { // it was closed meanwhile, perhaps before the peer was queued
		l.Clear()
	}
}

// Refuse implements provider.Caller.
func (c *caller) Refuse(why error) {
	refusal := encodeRefusal(fabric.RefusalKind(why))
	_ = rejectID(c.conn.id, refusal[:]) // it may be gone
	c.d.conns.drop(c.conn)
	c.d.refusals.Warn(c.name, "verbs: a peer was refused", "why", why)
}

func (l *listener) Accept(
	ctx context.Context, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	if err := l.d.Enter("Accept", &l.d.calls); err != nil {
		return nil, err
	}
	defer l.d.calls.Done()
	return l.Listener.Accept(ctx, cfg)
}

// Admit implements provider.Caller.
func (c *caller) Admit(mine fabric.EndpointConfig) (fabric.Endpoint, error) {
	e, err := c.meet(mine)
	if err != nil {
		c.Refuse(err)
		return nil, err
	}
	hello := encodeHello(&e.Config.Hello, remoteKey(e.gate.mr))
	in, out := c.d.reads(c.readsIn, c.readsOut)
	if err := acceptID(c.conn.id, e.qp, hello[:], in, out); err != nil {
		e.Disown()
		e.Die(errs.Disconnected, "the peer gave up")
		_ = e.Close()
		return nil, errs.Newf(errs.Disconnected, "verbs", e.Name(), "the peer gave up: %w", err)
	}
	return e, nil
}

// meet makes the listener's endpoint, ready to send and receive.
func (c *caller) meet(cfg fabric.EndpointConfig) (*endpoint, error) {
	d := c.d
	dev, err := d.deviceOf(c.conn)
	if err != nil {
		return nil, err
	}
	e, err := newEndpoint(d, dev, c.conn, cfg)
	if err != nil {
		return nil, err
	}
	in, out := d.reads(c.readsIn, c.readsOut)
	if err = e.join(c.Peer, c.gate, in, out); err != nil {
		e.discard()
		return nil, err
	}
	return e, nil
}

// join starts an endpoint whose peer is known.
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

// deviceOf finds the device of a resolved address and takes a reference to it.
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
	return d.Domain.Dial(ctx, addr, &cfg, func(ctx context.Context) (fabric.Endpoint, error) {
		ctx, cancel := context.WithTimeout(ctx, d.opts.DialTimeout)
		defer cancel()
		return d.dial(ctx, addr, cfg)
	})
}

func (d *domain) dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
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

// resolveMs bounds each step of resolving an address.
const resolveMs = 2000

// find resolves the address and makes an endpoint on the device of the route.
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

// call exchanges hellos with the listener and starts the endpoint.
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
	if err == nil { // a refusal comes as an error
		err = provider.CheckAnswer(&e.Config.Hello, &peer, errs.OK)
	}
	if err != nil {
		return err
	}
	in, out := e.d.reads(depth, ev.readsOut)
	e.gate.live = true // the listener's queue pair was up before it answered
	who := fabric.Peer{Hello: peer}
	if e.Config.Hello.Token != [32]byte{} {
		who.Proof = fabric.ProofToken // CheckAnswer has seen to it
	}
	return e.join(who, gate, in, out)
}
