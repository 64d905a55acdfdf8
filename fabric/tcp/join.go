package tcp

import (
	"context"
	"crypto/rand"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// joining is an endpoint whose lanes may come.
type joining struct {
	ready chan struct{} // closed when e is set
	e     *endpoint     // nil: there was none in the end
}

// expectLanes makes a key for the lanes of an endpoint that is about to be made.
func (d *domain) expectLanes() ([32]byte, *joining) {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	j := &joining{ready: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.joins[key] = j
	return key, j
}

func (d *domain) forgetLanes(key [32]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.joins, key)
}

// join makes a peer's socket the lane of an endpoint.
func (l *listener) join(ctx context.Context, g *greeting, h *hello) error {
	d := l.d
	d.mu.Lock()
	j := d.joins[h.Token]
	d.mu.Unlock()
	refused := errs.Newf(errs.Perm, "tcp", "lane", "no endpoint waits for it")
	if j == nil {
		return refused
	}
	select {
	case <-j.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if j.e == nil || g.name != j.e.proved {
		return refused
	}
	yes := hello{Hello: fabric.Hello{Version: fabric.HelloVersion}, join: true}
	if err := writeHello(g, d, yes); err != nil {
		return err
	}
	k, err := g.sock(d.opts.PeerTimeout)
	if err != nil {
		_ = g.tcp.Close()
	} else if err = j.e.addLane(int(h.sockets), k); err != nil {
		_ = k.conn.Close() // the endpoint is dead already; after the answer there is no refusing
	}
	return nil
}

// openLanes is the dialler's part.
func (d *domain) openLanes(ctx context.Context, addr string, e *endpoint, key [32]byte) error {
	for index := 1; index <= e.lanes.count; index++ {
		k, err := d.openLane(ctx, addr, index, key)
		if err != nil {
			return err
		}
		if err := e.addLane(index, k); err != nil {
			_ = k.conn.Close()
			return err
		}
	}
	return nil
}

func (d *domain) openLane(ctx context.Context, addr string, index int, key [32]byte) (
	*sock, error,
) {
	g, err := d.call(ctx, addr)
	if err != nil {
		return nil, err
	}
	h := hello{join: true, sockets: uint8(index)}
	h.Version, h.Token = fabric.HelloVersion, key
	if err = writeHello(g, d, h); err == nil {
		h, err = readHello(ctx, g)
	}
	if err == nil && h.refusal != errs.OK {
		err = errs.Newf(h.refusal, "tcp", "lane", "refused by the listener")
	}
	var k *sock
	if err == nil {
		k, err = g.sock(d.opts.PeerTimeout)
	}
	if err != nil {
		_ = g.tcp.Close()
	}
	return k, err
}
