package mover_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
)

// tester is what *testing.T, *testing.B and *rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(fn func())
}

// provider opens two domains. near is the one that moves; it is the listener if nearListens.
type provider struct {
	name        string
	nearListens bool
	open        func(t tester) (near, far fabric.Domain, addr string, farSource mem.Source)
	net         *sim.Net // only sim
}

func onSim(opts sim.Options) provider {
	p := provider{name: "sim", net: sim.New(opts)}
	p.open = func(tester) (fabric.Domain, fabric.Domain, string, mem.Source) {
		return p.net.Open(), p.net.Open(), "far", nil
	}
	return p
}

func onTCP() provider {
	return provider{
		name: "tcp",
		open: func(t tester) (fabric.Domain, fabric.Domain, string, mem.Source) {
			var d [2]fabric.Domain
			for i := range d {
				var err error
				d[i], err = tcp.Open(tcp.Options{Log: slog.New(slog.DiscardHandler)})
				check(t, err)
			}
			return d[0], d[1], "127.0.0.1:0", nil
		},
	}
}

// onShm moves between processes' memory as a server does: straight into the client's arena.
// rings is the other way round, through the rings.
func onShm(rings bool) provider {
	p := provider{name: "shm", nearListens: !rings}
	if rings {
		p.name = "shm rings"
	}
	p.open = func(t tester) (fabric.Domain, fabric.Domain, string, mem.Source) {
		dir, err := os.MkdirTemp("", "mover")
		check(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		arenas := shm.NewArenas()
		near, err := shm.Open(shm.Options{})
		check(t, err)
		far, err := shm.Open(shm.Options{Arenas: arenas})
		check(t, err)
		return near, far, "unix:" + filepath.Join(dir, "s"), arenas
	}
	return p
}

// side is one end.
type side struct {
	dom   fabric.Domain
	cq    fabric.CQ
	ep    fabric.Endpoint
	arena *mem.Arena
	mem   []byte // of the arena, cut off for the test's use
}

func (s *side) sge(off, n int) fabric.Sge {
	return fabric.Sge{Reg: s.arena.RegionOf(s.dom), Buf: s.mem[off : off+n : off+n]}
}

func (s *side) grant(t tester, off, n int, rights fabric.Rights) fabric.Remote {
	t.Helper()
	r, err := s.arena.RegionOf(s.dom).Grant(s.ep, off, n, rights) // mem is the arena's beginning
	check(t, err)
	return r
}

func (s *side) revoke(r fabric.Remote) { s.arena.RegionOf(s.dom).Revoke(r) }

// rig is a near side that moves, and a far side.
type rig struct {
	t         tester
	prov      provider
	near, far side
	posts     atomic.Int64 // calls of Post at the near side that posted something
	requests  atomic.Int64
	farSource mem.Source
}

type rigOptions struct {
	bytes int // of memory a side; default 1 MiB
	depth int // of the send and receive queues; default 64
	raw   bool
}

// counting is an endpoint that counts what is posted.
type counting struct {
	*hook.Endpoint
	r *rig
}

func (c *counting) Post(wrs []fabric.WR) error {
	err := c.Endpoint.Post(wrs)
	if err == nil {
		c.r.posts.Add(1)
		c.r.requests.Add(int64(len(wrs)))
	}
	return err
}

func newRig(t tester, prov provider, o rigOptions) *rig {
	t.Helper()
	if o.bytes == 0 {
		o.bytes = 1 << 20
	}
	if o.depth == 0 {
		o.depth = 64
	}
	r := &rig{t: t, prov: prov}
	near, far, addr, source := prov.open(t)
	if !o.raw { // the near side's domain counts
		near = hook.Wrap(near, hook.Layer{
			Endpoint: func(e *hook.Endpoint, _ fabric.EndpointConfig) fabric.Endpoint {
				return &counting{e, r}
			},
		})
	}
	r.farSource = source
	r.near.open(t, near, nil, o)
	r.far.open(t, far, source, o)
	r.connect(addr, o.depth)
	t.Cleanup(r.close)
	return r
}

func (s *side) open(t tester, dom fabric.Domain, source mem.Source, o rigOptions) {
	t.Helper()
	s.dom = dom
	var err error
	s.cq, err = dom.NewCQ(fabric.CQOptions{Depth: 4 * o.depth})
	check(t, err)
	const room = 8 << 20 // for staging, and what else is cut
	s.arena, err = mem.NewArena(o.bytes+room, source)
	check(t, err)
	check(t, s.arena.Attach(dom))
	s.mem, err = s.arena.Cut(o.bytes, 4096)
	check(t, err)
}

func (r *rig) connect(addr string, depth int) {
	r.t.Helper()
	dials, listens := &r.near, &r.far
	if r.prov.nearListens {
		dials, listens = listens, dials
	}
	cfg := func(s *side) fabric.EndpointConfig {
		return fabric.EndpointConfig{SendCQ: s.cq, RecvCQ: s.cq, SendDepth: depth, RecvDepth: depth}
	}
	l, err := listens.dom.Connector().Listen(addr)
	check(r.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	accepted := make(chan error, 1)
	go func() {
		var err error
		listens.ep, err = l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return cfg(listens), nil
		})
		accepted <- err
	}()
	dials.ep, err = dials.dom.Connector().Dial(ctx, l.Addr().String(), cfg(dials))
	check(r.t, err)
	check(r.t, <-accepted)
	check(r.t, l.Close())
}

// close ends everything; -tags invariants then finds buffers that were not returned.
func (r *rig) close() {
	for _, s := range []*side{&r.near, &r.far} {
		check(r.t, s.ep.Close())
	}
	for _, s := range []*side{&r.near, &r.far} {
		check(r.t, s.dom.Close())
		check(r.t, s.cq.Close())
		check(r.t, s.arena.Close())
	}
}

// mover makes the near side's mover, with staging and a pool for notices.
func (r *rig) mover(o mover.Options) *mover.Mover {
	r.t.Helper()
	o.Domain, o.Endpoint = r.near.dom, r.near.ep
	if o.SendDepth == 0 {
		o.SendDepth = 64
	}
	if o.Staging == nil {
		pool, err := mem.NewPool(r.near.arena, 256<<10, 16)
		check(r.t, err)
		o.Staging = mover.FromPool(pool)
	}
	if o.Notices == nil {
		pool, err := mem.NewPool(r.near.arena, 2048, 32)
		check(r.t, err)
		o.Notices = pool
	}
	m, err := mover.New(o)
	check(r.t, err)
	return m
}

// recv posts a receive at the far side.
func (r *rig) recv(buf []byte) {
	r.t.Helper()
	reg := r.far.arena.RegionOf(r.far.dom)
	check(r.t, r.far.ep.PostRecv([]fabric.Recv{{Reg: reg, Buf: buf}}))
}

// next waits for the far side's next completion.
func (s *side) next(t tester) fabric.Completion {
	t.Helper()
	ctx, cancel := patience()
	defer cancel()
	var dst [1]fabric.Completion
	n, err := s.cq.Wait(ctx, dst[:])
	check(t, err)
	if n != 1 {
		t.Fatal("woken for nothing")
	}
	return dst[0]
}

func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

func check(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t tester, err error, want errs.Kind) {
	t.Helper()
	if errs.KindOf(err) != want {
		t.Fatalf("got %v (%v), want %v", err, errs.KindOf(err), want)
	}
}

func (s *side) side(source mem.Source) mover.Side {
	return mover.Side{Domain: s.dom, Endpoint: s.ep, Queue: s.cq, Source: source}
}
