package remote_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a service with its server on a network.
type host struct {
	t      testing.TB
	c      metatest.Config
	domain fabric.Domain
	engine *memkv.Store
	store  *store.Store
	server *server.Server
	node   *msg.Node
	srv    *msg.Server
	doors  int // for members
	client func(addr string) *remote.Service
}

// as serves a member at an address of its own: who comes there has proved to be it.
func (h *host) as(p meta.Peer) meta.Service {
	h.doors++
	at := fmt.Sprint(addr, "-", h.doors)
	s := must(server.New(metatest.As(h.store, p), server.Options{Node: h.node}))
	must(h.node.Serve(at, s, msg.ServeOptions{Quick: server.Quick}))
	return h.client(at)
}

const addr = "meta"

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (h *host) start() {
	h.store = must(store.New(context.Background(), h.engine, store.Options{Objects: h.c.Objects,
		Key: h.c.Key, Host: func() string { return h.c.Host }, Clock: h.c.Clock, Lease: h.c.Lease,
		CapTTL: h.c.CapTTL, Tick: h.c.Tick}))
	h.node = must(msg.NewNode(msg.Options{Domain: h.domain}))
	h.server = must(server.New(h.store, server.Options{Node: h.node}))
	h.srv = must(h.node.Serve(addr, h.server, msg.ServeOptions{Quick: server.Quick}))
}

func (h *host) stop() {
	_ = h.node.Close()
	h.store.Stop()
}

func (h *host) verify(t testing.TB) {
	err := h.store.Verify(context.Background(), func(problem string) { t.Error(problem) })
	if err != nil {
		t.Error(err)
	}
}

// newHost starts a service and a client that is connected to it.
func newHost(t testing.TB, c metatest.Config, net *sim.Net, opt remote.Options) (
	*host, *remote.Service) {

	h := &host{t: t, c: c, domain: net.Open(), engine: memkv.New(memkv.Options{})}
	h.start()
	domain := net.Open()
	node := must(msg.NewNode(msg.Options{Domain: domain}))
	var pools []*peer.Pool
	h.client = func(at string) *remote.Service {
		pool := peer.NewPool(node, func(context.Context, uint32) (string, error) { return at, nil })
		pools = append(pools, pool)
		opt.Pool, opt.Node = pool, node
		return must(remote.New(opt))
	}
	t.Cleanup(func() {
		for _, pool := range pools {
			_ = pool.Close()
		}
		_ = node.Close()
		_ = domain.Close()
		h.stop()
		_ = h.domain.Close()
		_ = h.engine.Close()
	})
	return h, h.client(addr)
}

// TestSuite runs what defines a service on the one across the network.
func TestSuite(t *testing.T) {
	for name, opt := range map[string]sim.Options{
		"sim": {}, "regions only": {RegionsOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // much of it is waiting for operations that cannot be done
			metatest.Run(t, func(t testing.TB, c metatest.Config) *metatest.Instance {
				h, service := newHost(t, c, sim.New(opt), remote.Options{
					WaitMax: 8 * time.Second, // a busy machine may stand still for some
					Backoff: peer.Backoff{First: time.Millisecond, Max: 10 * time.Millisecond},
				})
				return &metatest.Instance{Service: service, Verify: h.verify, As: h.as,
					Restart: func(t testing.TB) {
						h.stop()
						h.engine = must(h.engine.Reopen())
						h.start()
					}}
			})
		})
	}
}
