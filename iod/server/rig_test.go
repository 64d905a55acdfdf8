package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
	"go.uber.org/goleak"
)

func goleakMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rigMemory = 32 << 20

// rig is an I/O server on real tcp with a store in memory, and a remote that talks to it.
type rig struct {
	key    capability.Key
	pool   *msg.Pool
	remote *remote.Remote
	srv    *server.Server
	stop   func(t *testing.T)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store, err := memstore.New(memstore.Options{})
	check(err)
	domain, err := tcp.Open(tcp.Options{})
	check(err)
	node, err := msg.NewNode(msg.Options{Domain: domain})
	check(err)
	cache, err := unifier.New(unifier.Config{MemoryBytes: rigMemory, Registrar: node}, store)
	check(err)
	g := &rig{key: capability.Key{42}}
	g.srv, err = server.New(server.Config{ID: 1, Key: g.key.ServerKey(1), Store: store, Cache: cache})
	check(err)
	listen, err := node.Serve("127.0.0.1:0", g.srv, msg.ServeOptions{})
	check(err)
	g.pool = msg.NewPool(node, func(context.Context, uint32) (string, error) {
		return listen.Addr(), nil
	})
	g.remote = remote.New(g.pool, remote.Options{})
	stopped := false
	g.stop = func(t *testing.T) {
		if !stopped {
			stopped = true
			check(listen.Close(context.Background()))
		}
	}
	t.Cleanup(func() {
		g.stop(t)
		check(g.pool.Close())
		check(node.Close())
		check(cache.Close())
		check(domain.Close())
		check(store.Close())
	})
	return g
}

func (g *rig) now() time.Time { return time.Now() }

func (g *rig) target(file uint64, r capability.Rights) iod.Target {
	return g.targetGen(file, 1, r)
}

func (g *rig) targetGen(file uint64, gen uint32, r capability.Rights) iod.Target {
	return g.sign(capability.Capability{File: file, Gen: gen, Rights: r, Session: 9, Server: 1,
		Expiry: g.now().Add(time.Minute)})
}

func (g *rig) targetUntil(file uint64, r capability.Rights, until time.Time) iod.Target {
	return g.sign(capability.Capability{File: file, Gen: 1, Rights: r, Session: 9, Server: 1,
		Expiry: until})
}

func (g *rig) sign(c capability.Capability) iod.Target {
	return iod.Target{Server: 1, Object: stripe.ObjectID{File: c.File, Gen: c.Gen},
		Cap:   g.key.ServerKey(1).Sign(&c),
		Stamp: wire.Stamp{Session: c.Session, Gen: c.Gen}}
}

func (g *rig) counts() map[string]uint64 {
	out := map[string]uint64{}
	for _, c := range g.srv.Counts() {
		out[c.Name] = c.Value
	}
	return out
}

// awaitIdle waits until no request runs and nothing is lent: a client has its answer a moment
// before the server has its memory back.
func (g *rig) awaitIdle(t *testing.T) {
	t.Helper()
	for range 300 {
		if c := g.counts(); c["lent_bytes"] == 0 && c["requests_running"] == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("still held: %v", g.counts())
}
