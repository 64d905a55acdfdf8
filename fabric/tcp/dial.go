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
	g, peer, err := d.greet(ctx, addr, &cfg)
	if err != nil {
		return nil, err
	}
	e, err := d.attach(g, cfg, peer)
	if err != nil {
		_ = g.tcp.Close()
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

// greet connects a socket and exchanges hellos.
func (d *domain) greet(ctx context.Context, addr string, cfg *fabric.EndpointConfig) (
	*greeting, fabric.Peer, error,
) {
	g, err := d.call(ctx, addr)
	if err != nil {
		return nil, fabric.Peer{}, err
	}
	peer, err := d.introduce(ctx, g, cfg)
	if err != nil {
		_ = g.tcp.Close()
		return nil, peer, err
	}
	return g, peer, nil
}

// introduce is the dialler's side of the hellos.
func (d *domain) introduce(ctx context.Context, g *greeting, cfg *fabric.EndpointConfig) (
	peer fabric.Peer, err error,
) {
	if err = writeHello(g, d, hello{Hello: cfg.Hello}); err != nil {
		return peer, err
	}
	h, err := readHello(ctx, g)
	if err == nil {
		err = provider.CheckAnswer(&cfg.Hello, &h.Hello, h.refusal)
	}
	peer = fabric.Peer{Hello: h.Hello, Proof: g.who, Name: g.name, Recheck: g.recheck()}
	if peer.Proof == fabric.ProofNone && cfg.Hello.Token != [32]byte{} {
		peer.Proof = fabric.ProofToken // CheckAnswer has seen to it
	}
	return peer, err
}
