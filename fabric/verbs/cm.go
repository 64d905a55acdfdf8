//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"net"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// connector makes the connections of a domain.
type connector struct{ d *domain }

// backlog is how many peers of a listener may wait for Accept; more are refused.
const backlog = 64

// listener keeps the requests of peers until Accept.
type listener struct {
	d      *domain
	conn   *conn
	addr   net.Addr
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	ready  chan *caller
	once   sync.Once
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
	if err := d.enter("verbs.Listen"); err != nil {
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
	l := &listener{d: d, conn: own, ready: make(chan *caller, backlog)}
	l.ctx, l.cancel = context.WithCancel(d.ctx)
	own.mu.Lock()
	own.listener = l
	own.mu.Unlock()
	if err = bindID(own.id, at); err == nil {
		err = listenID(own.id, backlog)
	}
	if err != nil {
		l.cancel()
		d.conns.drop(own)
		return nil, errs.Wrap("verbs.Listen", addr, err)
	}
	l.addr, _ = idAddrs(own.id)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listeners[l] = struct{}{}
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// request queues a peer. It is called by serveEvents and never blocks.
func (l *listener) request(ev *cmEvent) {
	c := &caller{conn: newConn(ev.id), readsIn: ev.readsIn, readsOut: ev.readsOut}
	c.hello, c.gate, c.err = decodeHello(ev.private[:ev.privateLen])
	l.d.conns.add(c.conn)
	select {
	case l.ready <- c:
	default:
		l.d.turnAway(c, errs.Newf(errs.Again, "verbs.Accept", "", "%d peers wait already", backlog))
	}
	if l.ctx.Err() != nil { // it was closed meanwhile, and may have looked before
		l.clear()
	}
}

// clear refuses everybody who waits. An Accept that still runs may be quicker, and is welcome to
// it.
func (l *listener) clear() {
	for {
		select {
		case c := <-l.ready:
			l.d.turnAway(c, errClosed("verbs.Accept"))
		default:
			return
		}
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
	if err := l.d.enter("verbs.Accept"); err != nil {
		return nil, err
	}
	defer l.d.calls.Done()
	if l.ctx.Err() != nil {
		return nil, errClosed("verbs.Accept")
	}
	select {
	case c := <-l.ready:
		e, err := l.welcome(c, cfg)
		if err != nil {
			return nil, errs.Wrap("verbs.Accept", l.addr.String(), err)
		}
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, errClosed("verbs.Accept")
	}
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
		d.unreserve(&mine)
		d.turnAway(c, err)
		return nil, err
	}
	hello := encodeHello(&e.cfg.Hello, remoteKey(e.gate.mr))
	in, out := d.reads(c.readsIn, c.readsOut)
	if err := acceptID(c.conn.id, e.qp, hello[:], in, out); err != nil {
		e.die(errs.Disconnected, "the peer gave up")
		_ = e.Close()
		return nil, errs.Newf(errs.Disconnected, "verbs", e.name, "the peer gave up: %w", err)
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
	if mine, err = cfg(peer); err != nil {
		if errs.KindOf(err) == errs.Closed { // of something else: it must not end the listener
			err = errs.Newf(errs.Disconnected, "verbs", "", "refused: %w", err)
		}
		return peer, mine, err
	}
	if err = l.d.reserve(&mine); err != nil {
		return peer, mine, err
	}
	mine.Hello.Token = answer
	if v := mine.Hello.Version; v != fabric.HelloVersion {
		l.d.unreserve(&mine)
		err = errs.Newf(errs.Version, "verbs", "hello", "this side says %d", v)
	}
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
	e.peer, e.gate.peerKey = peer, gate
	timeout := ackTimeout(e.d.opts.PeerTimeout)
	if err := readyQP(e.conn.id, e.qp, readsIn, readsOut, timeout); err != nil {
		return errs.Newf(errs.Disconnected, "verbs.connect", e.name, "%w", err)
	}
	if err := e.d.adopt(e); err != nil {
		return err
	}
	e.conn.attach(e)
	return nil
}

// reads bounds the Reads that a connection may have under way, in and out.
func (d *domain) reads(in, out int) (int, int) {
	return min(in, d.caps.ReadDepth), min(out, d.caps.ReadDepth)
}

// deviceOf finds the device on which an address was found, and uses it.
func (d *domain) deviceOf(c *conn) (*device, error) {
	name := idDevice(c.id)
	if dev := d.deviceNamed(name); dev != nil {
		return dev, nil
	}
	return d.plugIn(name)
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.cancel()
		l.d.mu.Lock()
		delete(l.d.listeners, l)
		l.d.mu.Unlock()
		l.d.conns.drop(l.conn)
		l.clear()
	})
	return nil
}

func (c connector) Dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	d := c.d
	if err := d.enter("verbs.Dial"); err != nil {
		return nil, err
	}
	defer d.calls.Done()
	if err := d.reserve(&cfg); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, d.opts.DialTimeout)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	e, err := d.dial(bounded, addr, cfg)
	if err == nil {
		return e, nil
	}
	d.unreserve(&cfg)
	switch {
	case d.ctx.Err() != nil:
		err = errClosed("verbs.Dial")
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	return nil, errs.Wrap("verbs.Dial", addr, err)
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
		e.returned.Store(true) // the reservation is the caller's
		e.die(errs.Disconnected, "the peer gave up")
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
	hello, depth := encodeHello(&e.cfg.Hello, remoteKey(e.gate.mr)), e.d.caps.ReadDepth
	if err := connectID(e.conn.id, e.qp, hello[:], depth, depth); err != nil {
		return errs.Newf(errs.Disconnected, "verbs", e.name, "%w", err)
	}
	ev, err := e.conn.await(ctx, cmConnectResponse)
	if err != nil {
		return err
	}
	peer, gate, err := decodeHello(ev.private[:ev.privateLen])
	if err == nil && e.cfg.Hello.Version != fabric.HelloVersion {
		err = errs.Newf(errs.Version, "verbs", "hello", "the peer speaks version %d", peer.Version)
	}
	if err == nil {
		err = fabric.CheckAnswer(&e.cfg.Hello, &peer)
	}
	if err != nil {
		return err
	}
	in, out := e.d.reads(depth, ev.readsOut)
	e.gate.live = true // the listener's queue pair was up before it answered
	return e.join(fabric.Peer{Hello: peer}, gate, in, out)
}

// reserve checks cfg, fills in its hello and sets its places in the completion queues aside.
func (d *domain) reserve(cfg *fabric.EndpointConfig) error {
	if err := fabric.CheckEndpoint(&d.caps, cfg); err != nil {
		return err
	}
	send, ok1 := cfg.SendCQ.(*cq)
	recv, ok2 := cfg.RecvCQ.(*cq)
	if !ok1 || !ok2 || send.d != d || recv.d != d {
		return errs.Newf(errs.Invalid, "fabric.EndpointConfig", "", "a queue of another domain")
	}
	if err := send.reserve(cfg.SendDepth); err != nil {
		return err
	}
	if err := recv.reserve(cfg.RecvDepth); err != nil {
		send.unreserve(cfg.SendDepth)
		return err
	}
	return nil
}

func (d *domain) unreserve(cfg *fabric.EndpointConfig) {
	cfg.SendCQ.(*cq).unreserve(cfg.SendDepth)
	cfg.RecvCQ.(*cq).unreserve(cfg.RecvDepth)
}
