package server_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
	"go.uber.org/goleak"
)

func goleakMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rigMemory = 32 << 20

// setup is what tests change of a rig.
type setup struct {
	cfg   server.Config
	cache unifier.Config
	store stripe.Engine // nil: one in memory
}

// rig is an I/O server on real tcp with a store in memory behind rules for faults, and a remote
// that talks to it.
type rig struct {
	t       testing.TB
	key     capability.Key
	disk    *fault.Engine
	node    *msg.Node
	pool    *peer.Pool
	remote  *remote.Remote
	srv     *server.Server
	listen  *msg.Server
	address string
	stop    func() // nobody is served any more
	close   func() // everything but the store is gone
}

func newRig(t testing.TB, change ...func(*setup)) *rig {
	t.Helper()
	s := setup{cache: unifier.Config{MemoryBytes: rigMemory}}
	for _, fn := range change {
		fn(&s)
	}
	g := &rig{t: t, key: capability.Key{42}}
	if s.store == nil {
		store, err := memstore.New(memstore.Options{})
		g.check(err)
		t.Cleanup(func() { g.check(store.Close()) })
		s.store = store
	}
	g.disk = fault.New(s.store)
	domain, err := tcp.Open(tcp.Options{})
	g.check(err)
	node, err := msg.NewNode(msg.Options{Domain: domain})
	g.check(err)
	g.node, s.cache.Registrar = node, node
	cache, err := unifier.New(s.cache, g.disk)
	g.check(err)
	if s.cfg.Key == nil {
		s.cfg.Key = g.key.ServerKey(1)
	}
	s.cfg.ID, s.cfg.Store, s.cfg.Cache = 1, g.disk, cache
	g.srv, err = server.New(s.cfg)
	g.check(err)
	listen, err := node.Serve("127.0.0.1:0", g.srv, msg.ServeOptions{MaxCalls: -1})
	g.check(err)
	g.pool = peer.NewPool(node, func(context.Context, uint32) (string, error) {
		return listen.Addr(), nil
	})
	g.listen, g.address = listen, listen.Addr()
	g.remote = remote.New(g.pool, remote.Options{})
	stopped, closed := false, false
	g.stop = func() {
		if !stopped {
			stopped = true
			g.check(listen.Close(context.Background()))
		}
	}
	g.close = func() {
		if closed {
			return
		}
		closed = true
		_ = g.remote.Close() // what it keeps may be unsynced: the server goes away on purpose
		g.stop()
		g.check(g.pool.Close())
		g.srv.Close()
		g.check(errors.Join(cache.Close(), node.Close(), domain.Close()))
	}
	t.Cleanup(g.close)
	return g
}

func (g *rig) check(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) now() time.Time { return time.Now() }

func (g *rig) target(file uint64, r capability.Rights) iod.Target {
	return g.targetGen(file, 1, r)
}

func (g *rig) targetGen(file uint64, gen uint32, r capability.Rights) iod.Target {
	return g.sign(capability.Capability{File: file, Gen: gen, Rights: r, Session: 9, Server: 1,
		Layout: 3, Expiry: g.now().Add(time.Minute)})
}

func (g *rig) targetUntil(file uint64, r capability.Rights, until time.Time) iod.Target {
	return g.sign(capability.Capability{File: file, Gen: 1, Rights: r, Session: 9, Server: 1,
		Layout: 3, Expiry: until})
}

func (g *rig) sign(c capability.Capability) iod.Target {
	return iod.Target{Server: 1, Object: stripe.ObjectID{File: c.File, Gen: c.Gen}, Layout: c.Layout,
		Cap:   g.key.ServerKey(1).Sign(&c),
		Stamp: wire.Stamp{Session: c.Session, Gen: c.Gen}}
}

// ask sends one request as it is: nobody numbers it, sums it or sends it again.
func (g *rig) ask(op iod.Op, tg iod.Target, a iod.Args, out, in *msg.Memory) ([]byte, error) {
	g.t.Helper()
	conn, err := g.pool.Get(g.t.Context(), 1)
	g.check(err)
	return ask(g.t.Context(), conn, op, tg, a, out, in)
}

func ask(ctx context.Context, conn *msg.Conn, op iod.Op, tg iod.Target, a iod.Args,
	out, in *msg.Memory) ([]byte, error) {
	var e wire.Enc
	iod.AppendRequest(&e, op, &tg, &a)
	var rep msg.Reply
	err := conn.Call(ctx, &msg.Request{Op: uint16(op), Stamp: tg.Stamp, Body: e.B, Out: out,
		In: in}, &rep)
	return rep.Body, err
}

// dial is a client of its own; the function ends it.
func (g *rig) dial() (*msg.Conn, func()) {
	g.t.Helper()
	domain, err := tcp.Open(tcp.Options{})
	g.check(err)
	node, err := msg.NewNode(msg.Options{Domain: domain})
	g.check(err)
	conn, err := node.Dial(g.t.Context(), g.address)
	g.check(err)
	return conn, func() { g.check(errors.Join(node.Close(), domain.Close())) }
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
	for range 1000 {
		c := g.counts()
		held := c["requests_running"]
		for _, gate := range []string{"hits", "misses", "writes", "direct", "disk"} {
			held += c["gate_"+gate+"_running"] + c["gate_"+gate+"_waiting"]
		}
		if held == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("still held: %v", g.counts())
}
