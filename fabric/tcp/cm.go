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

// listener accepts sockets, as provider.Listener says. When its backlog is full those that have
// been in the hello for longest give way: see provider.Handshakes.
type listener struct {
	provider.Listener[*caller]
	d   *domain
	tcp *net.TCPListener
	met provider.Handshakes
}

// caller is a peer whose hello was read, or could not be.
type caller struct {
	provider.Met
	d    *domain
	conn *net.TCPConn
	g    *greeting // nil: there was no handshake
}

// Name implements provider.Caller.
func (c *caller) Name() string { return c.conn.RemoteAddr().String() }

// Close implements provider.Caller.
func (c *caller) Close() error { return c.conn.Close() }

// unproved tells whether the peer had to prove something and did not. Accept hears nothing of such
// peers: it would be busy with nothing else if somebody sent many.
func (c *caller) unproved() bool {
	if c.g == nil { // there was no handshake
		return c.d.opts.Security != nil
	}
	return c.g.asked && c.g.who == fabric.ProofNone
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
	l.Open(&d.Domain, sock)
	err = provider.Serve(&l.Listener, sock.AcceptTCP, l.met.Displace, func(conn *net.TCPConn) {
		ctx, s := l.met.Add(l.Context(), d.opts.HelloTimeout)
		l.Go(func() { l.meet(ctx, s, conn) })
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.tcp.Addr() }

// meet reads a peer's hello and puts it where Accept finds it.
func (l *listener) meet(ctx context.Context, s *provider.Handshake, conn *net.TCPConn) {
	c := &caller{d: l.d, conn: conn}
	err := l.greet(ctx, c)
	gaveWay := l.met.Remove(s)
	switch {
	case err != nil && gaveWay:
		l.d.CountRefusal()
		_ = conn.Close()
	case err != nil && c.unproved():
		c.Refuse(err)
		l.d.CountRefusal()
	default:
		c.Err = err
		l.Ready(c)
		return
	}
	l.Leave()
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
	c.Peer, c.Answer, err = d.opts.Tokens.Admit(h.Hello)
	if g.who != fabric.ProofNone {
		c.Peer.Proof, c.Peer.Name, c.Peer.Recheck = g.who, g.name, g.recheck()
	}
	return err
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

// Admit implements provider.Caller.
func (c *caller) Admit(mine fabric.EndpointConfig) (fabric.Endpoint, error) {
	d := c.d
	var e *endpoint
	err := writeHello(c.g, d, hello{Hello: mine.Hello})
	if err == nil {
		e, err = d.attach(c.g, mine, c.Peer)
	}
	if err != nil {
		d.seeOff(c.conn)
		return nil, err
	}
	return e, nil
}

// Refuse implements provider.Caller. It tells the log too, but not again and again.
func (c *caller) Refuse(err error) {
	kind := fabric.RefusalKind(err)
	if kind == errs.Perm || errs.KindOf(err) == errs.TimedOut {
		host, _, _ := net.SplitHostPort(c.Name())
		c.d.refused.Warn(host, "connection refused", "why", errs.Wrap("tcp.Accept", c.Name(), err))
	}
	if c.g != nil {
		why := hello{Hello: fabric.Hello{Version: fabric.HelloVersion}, refusal: kind}
		_ = writeHello(c.g, c.d, why)
	}
	c.d.seeOff(c.conn)
}

// attach makes a connection whose hellos are exchanged an endpoint. On failure the connection stays
// the caller's to close.
func (d *domain) attach(g *greeting, cfg fabric.EndpointConfig, peer fabric.Peer) (
	*endpoint, error,
) {
	k, err := g.sock(d.opts.PeerTimeout)
	if err != nil {
		return nil, err
	}
	e := newEndpoint(d, k, cfg, peer)
	e.proved = g.name
	if err = d.Adopt(&e.Endpoint, e, 2); err != nil {
		_ = k.conn.Close()
		return nil, err
	}
	e.start()
	return e, nil
}
