package tcp

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// connector makes the connections of a domain.
type connector struct{ d *domain }

// listener is drawn in package provider. When its backlog is full those that have been in the hello
// for longest give way: see strangers.
type listener struct {
	provider.Listener[caller]
	d   *domain
	tcp *net.TCPListener
	met strangers
}

// caller is a peer whose hello was read, or could not be.
type caller struct {
	conn   *net.TCPConn
	g      *greeting // nil: there was no handshake
	peer   fabric.Peer
	answer [32]byte // the token of this side's hello
	err    error
}

// unproved tells whether the peer had to prove something and did not. Accept hears nothing of such
// peers: it would be busy with nothing else if somebody sent many.
func (c *caller) unproved() bool {
	return c.g != nil && c.g.asked && c.g.who == fabric.ProofNone
}

func (c connector) Listen(addr string) (fabric.Listener, error) {
	d := c.d
	if err := d.Check("Listen"); err != nil {
		return nil, err
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
	l := &listener{d: d, tcp: sock}
	if err := l.Open(&d.Domain, sock, func(c caller) { _ = c.conn.Close() }); err != nil {
		return nil, err
	}
	provider.Serve(&l.Listener, sock.AcceptTCP, l.met.displace, func(conn *net.TCPConn) {
		ctx, s := l.met.add(l.Context(), d.opts.HelloTimeout)
		l.Go(func() { l.meet(ctx, s, conn) })
	})
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.tcp.Addr() }

// meet reads a peer's hello and puts it where Accept finds it.
func (l *listener) meet(ctx context.Context, s *stranger, conn *net.TCPConn) {
	c := caller{conn: conn}
	err := l.greet(ctx, &c)
	gaveWay := l.met.remove(s)
	switch {
	case err != nil && gaveWay:
		_ = conn.Close()
		l.Leave()
		return
	case err != nil && c.unproved():
		_ = l.refuse(&c, err)
		l.d.seeOff(conn)
		l.Leave()
		return
	}
	if c.err = err; err != nil {
		c.err = errs.Wrap("tcp.Accept", conn.RemoteAddr().String(), c.err)
	}
	l.Ready(c)
}

// greet finds out who calls.
func (l *listener) greet(ctx context.Context, c *caller) error {
	d := l.d
	g, err := shakeHands(ctx, c.conn, d.opts.Security, d.tlsServer, true)
	if err != nil {
		return err
	}
	c.g = g
	if d.opts.Security == nil {
		if err := d.proveOf(ctx, g); err != nil {
			return err
		}
	}
	h, err := readHello(ctx, g)
	if err != nil {
		return err
	}
	c.peer, c.answer, err = d.opts.Tokens.Admit(h.Hello)
	if g.who != fabric.ProofNone {
		c.peer.Proof, c.peer.Name = g.who, g.name
	}
	return err
}

func (l *listener) Accept(
	ctx context.Context, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	c, err := l.Next(ctx)
	if err != nil {
		return nil, err
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
	polite := d.leaving.Add(1) <= provider.Backlog && d.Go(func() {
		defer d.leaving.Add(-1)
		_ = conn.SetDeadline(time.Now().Add(d.opts.Linger))
		_ = conn.CloseWrite()
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
		_ = conn.Close()
	})
	if !polite {
		d.leaving.Add(-1)
		_ = conn.Close()
	}
}

// welcome answers a peer's hello.
func (l *listener) welcome(
	c *caller, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	mine, err := fabric.EndpointConfig{}, c.err
	if err == nil {
		mine, err = l.d.Configure(c.peer, c.answer, cfg)
	}
	if err != nil {
		return nil, l.refuse(c, err)
	}
	return l.admit(c, &mine)
}

// admit says hello and makes the endpoint.
func (l *listener) admit(c *caller, mine *fabric.EndpointConfig) (fabric.Endpoint, error) {
	d := l.d
	var e *endpoint
	err := writeHello(c.g, d, hello{Hello: mine.Hello})
	if err != nil {
		d.Unreserve(mine)
	} else {
		e, err = d.attach(c.g, *mine, c.peer)
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

// attach makes a connection whose hellos are exchanged an endpoint. On failure the reservation is
// given back and the connection stays the caller's to close.
func (d *domain) attach(g *greeting, cfg fabric.EndpointConfig, peer fabric.Peer) (
	*endpoint, error,
) {
	k, err := g.sock(d.opts.PeerTimeout)
	var e *endpoint
	if err == nil {
		e = newEndpoint(d, k, cfg, peer)
		e.proved = g.name
		if err = d.Adopt(&e.Endpoint, e, 2); err != nil {
			_ = k.conn.Close()
		}
	}
	if err != nil {
		d.Unreserve(&cfg)
		return nil, err
	}
	e.start()
	return e, nil
}
