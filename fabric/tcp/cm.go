package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// connector makes the connections of a domain.
type connector struct{ d *domain }

// backlog is how many peers of a listener may be in the hello, or through it and not yet accepted.
// When there are more, those that have been in the hello for longest give way: see strangers.
const backlog = 64

// listener accepts sockets and reads hellos in the background, so that a slow peer holds up nobody.
type listener struct {
	d      *domain
	tcp    *net.TCPListener
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	slots  chan struct{} // one for each peer between its accept and Accept
	ready  chan caller
	met    strangers
	wg     sync.WaitGroup
	once   sync.Once
}

// caller is a peer whose hello was read, or could not be.
type caller struct {
	conn    *net.TCPConn
	g       *greeting // nil: there was no handshake
	peer    fabric.Peer
	answer  [32]byte // the token of this side's hello
	sockets int      // how many lanes it wants
	err     error
}

// unproved tells whether the peer had to prove something and did not. Accept hears nothing of such
// peers: it would be busy with nothing else if somebody sent many.
func (c *caller) unproved() bool {
	return c.g != nil && c.g.asked && c.g.who == fabric.ProofNone
}

func (c connector) Listen(addr string) (fabric.Listener, error) {
	d := c.d
	if d.ctx.Err() != nil {
		return nil, errClosed("tcp.Listen")
	}
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, errs.New(errs.Invalid, "tcp.Listen", addr, err)
	}
	if d.opts.Security == nil && !at.IP.IsLoopback() {
		return nil, errs.Newf(errs.Perm, "tcp.Listen", addr,
			"no keys: without Security only loopback addresses can be listened on")
	}
	if d.opts.Secret != nil && d.secret == nil {
		return nil, errs.Newf(errs.Invalid, "tcp.Listen", addr, "a listener needs the Secret's File")
	}
	sock, err := net.ListenTCP("tcp", at)
	if err != nil {
		return nil, errs.Wrap("tcp.Listen", addr, err)
	}
	l := &listener{
		d: d, tcp: sock, slots: make(chan struct{}, backlog), ready: make(chan caller, backlog),
	}
	l.ctx, l.cancel = context.WithCancel(d.ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = sock.Close()
		l.cancel()
		return nil, errClosed("tcp.Listen")
	}
	d.listeners[l] = struct{}{}
	l.wg.Go(l.acceptSockets)
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.tcp.Addr() }

// acceptSockets runs until the listener is closed.
func (l *listener) acceptSockets() {
	for {
		conn, err := l.tcp.AcceptTCP()
		switch {
		case err == nil:
			if !l.takeSlot() {
				_ = conn.Close()
				return
			}
			ctx, s := l.met.add(l.ctx, l.d.opts.HelloTimeout)
			l.wg.Go(func() { l.meet(ctx, s, conn) })
		case errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil:
			return
		default: // out of descriptors, or a peer that was gone again
			select {
			case <-time.After(10 * time.Millisecond):
			case <-l.ctx.Done():
			}
		}
	}
}

// takeSlot waits until there is a slot, and makes one if strangers have them. It is false when the
// listener is closed.
func (l *listener) takeSlot() bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
		l.met.displace()
	}
	select {
	case l.slots <- struct{}{}:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// meet reads a peer's hello and puts it where Accept finds it.
func (l *listener) meet(ctx context.Context, s *stranger, conn *net.TCPConn) {
	c := caller{conn: conn}
	joined, err := l.greet(ctx, &c)
	gaveWay := l.met.remove(s)
	switch {
	case joined:
		<-l.slots
		return
	case err != nil && gaveWay:
		_ = conn.Close()
		<-l.slots
		return
	case err != nil && c.unproved():
		_ = l.refuse(&c, err)
		l.d.seeOff(conn)
		<-l.slots
		return
	}
	if c.err = err; err != nil {
		c.err = errs.Wrap("tcp.Accept", conn.RemoteAddr().String(), c.err)
	}
	l.ready <- c // never blocks: there are no more slots than places
}

// greet finds out who calls. A lane joins its endpoint and concerns nobody else.
func (l *listener) greet(ctx context.Context, c *caller) (joined bool, err error) {
	d := l.d
	g, err := shakeHands(ctx, c.conn, d.opts.Security, d.tlsServer, true)
	if err != nil {
		return false, err
	}
	c.g = g
	if d.opts.Security == nil {
		if err := d.proveOf(ctx, g); err != nil {
			return false, err
		}
	}
	h, err := readHello(ctx, g)
	if err != nil {
		return false, err
	}
	if h.join {
		if err := l.join(ctx, g, &h); err != nil {
			_ = l.refuse(c, err)
			d.seeOff(c.conn)
		}
		return true, nil
	}
	c.sockets = int(h.sockets)
	c.peer, c.answer, err = d.opts.Tokens.Admit(h.Hello)
	if g.who != fabric.ProofNone {
		c.peer.Proof, c.peer.Name = g.who, g.name
	}
	return false, err
}

func (l *listener) Accept(
	ctx context.Context, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	if l.ctx.Err() != nil {
		return nil, errClosed("tcp.Accept")
	}
	var c caller
	select {
	case c = <-l.ready:
		<-l.slots
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, errClosed("tcp.Accept")
	}
	e, err := l.welcome(&c, cfg)
	if err != nil {
		l.d.seeOff(c.conn)
		return nil, err
	}
	return e, nil
}

// seeOff closes the socket of a refused peer, but not before the reason has reached it: closing
// with unread data would destroy what is on its way.
func (d *domain) seeOff(conn *net.TCPConn) {
	d.mu.Lock()
	polite := !d.closed && d.leaving < backlog
	if polite {
		d.leaving++
		d.wg.Add(1)
	}
	d.mu.Unlock()
	if !polite {
		_ = conn.Close()
		return
	}
	go func() {
		defer d.wg.Done()
		_ = conn.SetDeadline(time.Now().Add(d.opts.Linger))
		_ = conn.CloseWrite()
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
		_ = conn.Close()
		d.mu.Lock()
		d.leaving--
		d.mu.Unlock()
	}()
}

// welcome answers a peer's hello.
func (l *listener) welcome(
	c *caller, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	mine, err := fabric.EndpointConfig{}, c.err
	if err == nil {
		mine, err = cfg(c.peer)
	}
	if err == nil {
		err = l.d.reserve(&mine)
	}
	if err != nil {
		return nil, l.refuse(c, err)
	}
	mine.Hello.Token = c.answer
	version := mine.Hello.Version
	if version != fabric.HelloVersion {
		err = errs.Newf(errs.Version, "tcp.Accept", "", "this side says %d", version)
	}
	if err != nil {
		l.d.unreserve(&mine)
		return nil, l.refuse(c, err)
	}
	return l.admit(c, &mine)
}

// admit says hello and makes the endpoint.
func (l *listener) admit(c *caller, mine *fabric.EndpointConfig) (fabric.Endpoint, error) {
	d := l.d
	h := hello{Hello: mine.Hello, sockets: uint8(min(c.sockets, maxLanes))}
	var (
		j   *joining
		key [32]byte
		e   *endpoint
	)
	if h.sockets > 0 {
		key, j = d.expectLanes()
		defer close(j.ready)
	}
	err := writeHello(c.g, d, h)
	if err == nil && j != nil {
		k := hello{join: true}
		k.Version, k.Token = fabric.HelloVersion, key
		err = writeHello(c.g, d, k)
	}
	if err != nil {
		d.unreserve(mine)
	} else {
		e, err = d.attach(c.g, *mine, c.peer, int(h.sockets))
	}
	if j != nil && err == nil {
		j.e = e
		e.joinKey.Store(&key)
	} else if j != nil {
		d.forgetLanes(key)
	}
	if err != nil {
		return nil, errs.Wrap("tcp.Accept", c.conn.RemoteAddr().String(), err)
	}
	return e, nil
}

// refuse tells a peer, as far as it can be told, and the log, but not again and again.
func (l *listener) refuse(c *caller, err error) error {
	err = errs.Wrap("tcp.Accept", c.conn.RemoteAddr().String(), err)
	host, _, _ := net.SplitHostPort(c.conn.RemoteAddr().String())
	kind := fabric.RefusalKind(err)
	if kind == errs.Perm {
		l.d.refused.Warn(host, "connection refused", "why", err)
	}
	if c.g != nil {
		why := hello{Hello: fabric.Hello{Version: fabric.HelloVersion}, refusal: kind}
		_ = writeHello(c.g, l.d, why)
	}
	return err
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.cancel()
		_ = l.tcp.Close()
		l.wg.Wait()
		for len(l.ready) > 0 { // an Accept that still runs may be quicker, and is welcome to it
			select {
			case c := <-l.ready:
				_ = c.conn.Close()
			default:
			}
		}
		l.d.mu.Lock()
		defer l.d.mu.Unlock()
		delete(l.d.listeners, l)
	})
	return nil
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

// attach makes a connection whose hellos are exchanged an endpoint. On failure the reservation is
// given back and the connection stays the caller's to close.
func (d *domain) attach(g *greeting, cfg fabric.EndpointConfig, peer fabric.Peer, lanes int) (
	*endpoint, error,
) {
	k, err := g.sock(d.opts.PeerTimeout)
	var e *endpoint
	if err == nil {
		e = newEndpoint(d, k, cfg)
		e.peer, e.proved, e.lanes.count = peer, g.name, lanes
		if err = d.adopt(e); err != nil {
			_ = k.conn.Close()
		}
	}
	if err != nil {
		d.unreserve(&cfg)
		return nil, err
	}
	e.start()
	return e, nil
}
