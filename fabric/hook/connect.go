package hook

import (
	"context"
	"net"

	"github.com/sluice-storage/sluice/fabric"
)

// connector makes wrapped connections.
type connector struct{ d *Domain }

// Devices implements fabric.Connector.
func (c connector) Devices() ([]fabric.Device, error) { return c.d.inner.Connector().Devices() }

// Listen implements fabric.Connector.
func (c connector) Listen(addr string) (fabric.Listener, error) {
	inner, err := c.d.inner.Connector().Listen(addr)
	if err != nil {
		return nil, err
	}
	return &listener{c.d, inner}, nil
}

// Dial implements fabric.Connector.
func (c connector) Dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	way := &Connection{Dialled: true, Addr: addr, Config: cfg, Asked: true}
	below, err := c.d.admit(way)
	var inner fabric.Endpoint
	if err == nil {
		inner, err = c.d.inner.Connector().Dial(ctx, addr, below)
	}
	return c.d.connected(way, inner, err)
}

// listener accepts wrapped endpoints.
type listener struct {
	d     *Domain
	inner fabric.Listener
}

func (l *listener) Addr() net.Addr { return l.inner.Addr() }
func (l *listener) Close() error   { return l.inner.Close() }

func (l *listener) Accept(
	ctx context.Context, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	way := &Connection{Addr: l.inner.Addr().String()}
	inner, err := l.inner.Accept(ctx, func(peer fabric.Peer) (fabric.EndpointConfig, error) {
		mine, err := cfg(peer)
		if err != nil {
			return mine, err
		}
		way.Config, way.Asked = mine, true
		return l.d.admit(way)
	})
	return l.d.connected(way, inner, err)
}

// admit asks the hook and gives the configuration for the provider below.
func (d *Domain) admit(way *Connection) (fabric.EndpointConfig, error) {
	if d.layer.Connect != nil {
		if err := d.layer.Connect(way); err != nil {
			return fabric.EndpointConfig{}, err
		}
	}
	below := way.Config
	below.SendCQ, below.RecvCQ = d.unwrapCQ(below.SendCQ), d.unwrapCQ(below.RecvCQ)
	return below, nil
}

// connected wraps what came of it and tells the hook.
func (d *Domain) connected(way *Connection, inner fabric.Endpoint, err error) (
	fabric.Endpoint, error,
) {
	way.Err = err
	if err == nil {
		way.EP = d.adopt(inner, way.Config)
	}
	if d.layer.Connected != nil {
		d.layer.Connected(way)
	}
	return way.EP, err
}
