package tcp

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

func (c connector) Dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	return c.d.Dial(ctx, addr, &cfg, func(ctx context.Context) (fabric.Endpoint, error) {
		return c.d.dial(ctx, addr, cfg)
	})
}

func (d *domain) dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	g, met, err := d.greet(ctx, addr, &cfg)
	if err != nil {
		return nil, err
	}
	e, err := d.attach(g, cfg, met.peer, met.lanes)
	if err != nil {
		_ = g.tcp.Close()
		return nil, err
	}
	if err := d.openLanes(ctx, addr, e, met.key); err != nil {
		e.Disown()
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

// call connects a socket, ready for hellos.
func (d *domain) call(ctx context.Context, addr string) (*greeting, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn)
	var conf *tls.Config
	if d.opts.Security != nil {
		conf = d.opts.Security.clientConfig(addr)
	}
	g, err := shakeHands(ctx, conn, d.opts.Security, conf, false)
	if err == nil && d.opts.Secret != nil {
		err = d.proveTo(ctx, g)
	}
	if err != nil {
		_ = conn.Close()
	}
	return g, err
}

// met is what a dialler learns in the hellos.
type met struct {
	peer  fabric.Peer
	lanes int
	key   [32]byte // of the lanes
}

// greet connects a socket and exchanges hellos.
func (d *domain) greet(ctx context.Context, addr string, cfg *fabric.EndpointConfig) (
	*greeting, met, error,
) {
	g, err := d.call(ctx, addr)
	if err != nil {
		return nil, met{}, err
	}
	m, err := d.introduce(ctx, g, cfg)
	if err != nil {
		_ = g.tcp.Close()
		return nil, m, err
	}
	return g, m, nil
}

// introduce is the dialler's side of the hellos.
func (d *domain) introduce(ctx context.Context, g *greeting, cfg *fabric.EndpointConfig) (
	m met, err error,
) {
	mine := hello{Hello: cfg.Hello, sockets: uint8(d.opts.Sockets - 1)}
	if err = writeHello(g, d, mine); err != nil {
		return m, err
	}
	h, err := readHello(ctx, g)
	if err == nil {
		err = provider.CheckAnswer(&cfg.Hello, &h.Hello, h.refusal)
	}
	if err == nil && (h.sockets > mine.sockets || h.join) {
		err = protocolErr("a hello that is no answer")
	}
	m.peer = fabric.Peer{Hello: h.Hello, Proof: g.who, Name: g.name}
	if m.peer.Proof == fabric.ProofNone && cfg.Hello.Token != [32]byte{} {
		m.peer.Proof = fabric.ProofToken // CheckAnswer has seen to it
	}
	if m.lanes = int(h.sockets); m.lanes > 0 && err == nil {
		if h, err = readHello(ctx, g); err == nil && !h.join {
			err = protocolErr("no key for the lanes")
		}
		m.key = h.Token
	}
	return m, err
}
