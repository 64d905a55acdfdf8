package iodtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network opens a domain for each party and knows where servers listen.
type network struct {
	name string
	open func(t testing.TB) fabric.Domain
	addr func(life int) string
}

func simNetwork(seed uint64, opts sim.Options) network {
	opts.Seed = seed
	net := sim.New(opts)
	return network{
		name: fmt.Sprintf("sim-%d-%d", opts.MaxDelay, opts.BreakOneIn),
		open: func(testing.TB) fabric.Domain { return net.Open() },
		addr: func(int) string { return "server" },
	}
}

// simFree is a network without delays and faults.
func simFree() sim.Options { return sim.Options{} }

func tcpNetwork() network {
	return network{
		name: "tcp",
		open: func(t testing.TB) fabric.Domain {
			d, err := tcp.Open(tcp.Options{Linger: 10 * time.Millisecond})
			fatal(t, err)
			return d
		},
		addr: func(int) string { return "127.0.0.1:0" },
	}
}

func shmNetwork(t testing.TB) network {
	dir := t.TempDir()
	return network{
		name: "shm",
		open: func(t testing.TB) fabric.Domain {
			d, err := shm.Open(shm.Options{})
			fatal(t, err)
			return d
		},
		addr: func(life int) string { return fmt.Sprintf("unix:%s/%d", dir, life) },
	}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serverID is the number of the only server.
const serverID = 1

// rigOptions say what a rig is made of.
type rigOptions struct {
	net   network
	store stripe.Engine
	cache unifier.Config // without what concerns the network
	serve msg.ServeOptions
	tune  func(*msg.Options) // of the server's node
	still bool               // no clock of the machine decides when something is written or synced

	remote remote.Options
}

// rig is a server that can die and come back on the same store, and what its clients need.
type rig struct {
	rigOptions
	t    testing.TB
	key  capability.Key
	addr atomic.Pointer[string] // of the server that lives
	seen trace                  // what reached the store
	held sync.Map               // sessions of clients that do not find the server

	mu   sync.Mutex
	life *life
	born int
}

// life is one server from start to crash. All that it has is its own, except for the store.
type life struct {
	domain fabric.Domain
	valve  *valve
	cache  *unifier.Cache
	srv    *server.Server
	node   *msg.Node
}

func newRig(t testing.TB, o rigOptions) *rig {
	if o.still {
		o.remote.KeepMax = time.Hour
		if o.cache.DirtyBytes > 0 {
			o.cache.DirtyAge = time.Hour
		}
	}
	g := &rig{rigOptions: o, t: t, key: capability.Key{7}}
	g.start()
	t.Cleanup(g.end)
	return g
}

func (g *rig) start() {
	g.t.Helper()
	l := &life{domain: g.net.open(g.t), valve: &valve{Engine: g.store, seen: &g.seen}}
	g.seen.begin()
	var err error
	mo := msg.Options{Domain: l.domain}
	if g.tune != nil {
		g.tune(&mo)
	}
	l.node, err = msg.NewNode(mo)
	fatal(g.t, err)
	cfg := g.cache
	cfg.Registrar = l.node
	scfg := server.Config{ID: serverID, Key: g.key.ServerKey(serverID), Store: l.valve,
		WriteBack: cfg.DirtyBytes > 0}
	l.cache, err = unifier.New(cfg, l.valve)
	fatal(g.t, err)
	scfg.Cache = l.cache
	l.srv, err = server.New(scfg)
	fatal(g.t, err)
	g.mu.Lock()
	g.born++
	born := g.born
	g.mu.Unlock()
	g.serve.MaxCalls = -1 // the server has an admission of its own
	listen, err := l.node.Serve(g.net.addr(born), l.srv, g.serve)
	fatal(g.t, err)
	addr := listen.Addr()
	g.addr.Store(&addr)
	g.mu.Lock()
	g.life = l
	g.mu.Unlock()
}

// now is the life that is on.
func (g *rig) now() *life {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life
}

// crash ends the server: it says nothing any more, then nothing reaches the store any more, and
// when crash returns nothing of it is left.
func (g *rig) crash() {
	l := g.now()
	_ = l.domain.Close()
	l.valve.shut()
	l.end(g.t)
}

func (l *life) end(t testing.TB) {
	_ = l.domain.Close()
	_ = l.node.Close()
	l.srv.Close()
	for range 1000 { // what is lent comes back when its handlers have seen the end
		if err := l.cache.Close(); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("the cache does not get its memory back: %+v", l.cache.Stats())
}

func (g *rig) end() {
	l := g.now()
	l.end(g.t)
	fatal(g.t, g.store.Close())
}

// counts are what the living server has counted.
func (g *rig) counts() map[string]uint64 {
	out := map[string]uint64{}
	for _, c := range g.now().srv.Counts() {
		out[c.Name] = c.Value
	}
	return out
}

// awaitIdle waits until no request runs, nothing is lent and no memory is held but for the cache's
// own: a client has its answer a moment before the server has its memory back.
func (g *rig) awaitIdle() {
	g.t.Helper()
	var c map[string]uint64
	for range 3000 {
		if c = g.counts(); c["lent_bytes"] == 0 && c["requests_running"] == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	g.t.Fatalf("still held: %v", c)
}

// target is an object with a capability for it.
func (g *rig) target(session uint64, id stripe.ObjectID, r capability.Rights,
	trunc uint64) iod.Target {
	c := capability.Capability{File: id.File, Gen: id.Gen, Rights: r, Session: session,
		Server: serverID, Expiry: time.Now().Add(time.Minute)}
	return iod.Target{Server: serverID, Object: id, Cap: g.key.ServerKey(serverID).Sign(&c),
		Stamp: wire.Stamp{Session: session, Gen: id.Gen, TruncSeq: trunc}}
}

// site is the rig as a crowd sees it.
func (g *rig) site() Site {
	s := Site{
		Join: func(session uint64) (Client, func()) {
			p := g.join(session, g.remote, nil)
			return p, p.vanish
		},
		Hold: func(session uint64) func() {
			g.held.Store(session, nil)
			return func() { g.held.Delete(session) }
		},
		Target: g.target, Kill: g.crash, Start: g.start, Tell: g.seen.tell,
	}
	if g.still {
		s.Flush = func() { // what the server cannot write any more is its crash's business
			_ = g.now().cache.Settle(context.Background(), stripe.ObjectID{}, 0, 0)
		}
	}
	return s
}

// party is a client: a process of its own as far as the server knows.
type party struct {
	*remote.Remote
	session uint64
	domain  fabric.Domain
	node    *msg.Node
	pool    *peer.Pool
	ended   sync.Once
}

func (g *rig) join(session uint64, opts remote.Options, tune func(*msg.Options)) *party {
	return g.joinBy(session, func() string { return *g.addr.Load() }, opts, tune)
}

// joinAt is join by way of an address that is not the server's own.
func (g *rig) joinAt(session uint64, addr func() string, opts remote.Options) *party {
	return g.joinBy(session, addr, opts, nil)
}

func (g *rig) joinBy(session uint64, addr func() string, opts remote.Options,
	tune func(*msg.Options)) *party {
	p := &party{session: session, domain: g.net.open(g.t)}
	o := msg.Options{Domain: p.domain}
	if tune != nil {
		tune(&o)
	}
	var err error
	p.node, err = msg.NewNode(o)
	fatal(g.t, err)
	p.pool = peer.NewPool(p.node, func(context.Context, uint32) (string, error) {
		if _, away := g.held.Load(session); away {
			return "", errs.New(errs.Disconnected, "rig", "", nil)
		}
		return addr(), nil
	})
	p.Remote = remote.New(p.pool, opts)
	g.t.Cleanup(p.vanish)
	return p
}

// vanish ends the client as kill -9 would: nothing is said, nothing is waited for.
func (p *party) vanish() {
	p.ended.Do(func() {
		_ = p.node.Close()
		_ = p.pool.Close()
		if c, ok := any(p.Remote).(interface{ Close() error }); ok {
			_ = c.Close()
		}
		_ = p.domain.Close()
	})
}
