package msg

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/mem"
)

// A world is a client and a server of a few credits on a small simulated net, all of it drawn from
// a seed: limits, delays, what the provider can do. A few callers make a short random sequence of
// requests in it, of every kind, some given up, over connections that break. Each answer is
// compared with the model; in the end everything must have come back.
type world struct {
	seed           uint64
	net            *sim.Net
	cdom, sdom     fabric.Domain
	client, server *Node
	srv            *Server
	conn           *Conn // guarded by breaking
	arena          *mem.Arena

	breaking sync.Mutex
	rng      *rand.Rand // of breaks

	oneWay, sent atomic.Uint64 // sums of what one-way messages carried
	broken       atomic.Bool   // a connection was cut: one-way messages may be lost
}

// Operations of a world besides the model's.
const (
	opModel = 1 + iota
	opSum
)

func (w *world) Serve(ctx context.Context, c *Call) {
	switch c.Header().Op {
	case opSum:
		w.oneWay.Add(binary.BigEndian.Uint64(c.Body()))
		_ = c.Reply(nil, 0)
	default:
		(&modelHandler{w.sdom}).Serve(ctx, c)
	}
}

// newWorld draws a world.
func newWorld(seed uint64) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 77))
	pick := func(list ...int) int { return list[rng.IntN(len(list))] }
	net := sim.Options{
		Seed: seed, MaxDelay: pick(0, 3, 20), RegionsOnly: rng.IntN(2) == 0,
		RefusalEnds: rng.IntN(4) == 0,
		Limits: fabric.Caps{
			MaxSge: pick(2, 3, 32), MaxTransfer: pick(900, 5000, 1<<30), MaxInline: pick(80, 200, 512),
			ReadDepth: pick(1, 16),
		},
	}
	w := &world{seed: seed, net: sim.New(net), rng: rng}
	w.cdom, w.sdom = w.net.Open(), w.net.Open()
	w.broken.Store(net.RefusalEnds) // a server that is slow to hear of a cancellation
	opts := func(d fabric.Domain) Options {
		return Options{
			Domain: d, Credits: pick(1, 2, 4), InlineMax: pick(64, 500), BodyMax: pick(1500, 3000),
			EagerMax: pick(-1, 3000, 20000), Unit: pick(minUnit, 10000), Memory: 1 << 20, Queues: 2,
			EagerSlots: pick(1, 3), EagerIdle: time.Duration(pick(1, 1000)) * time.Millisecond,
			Window:      pick(1000, 1<<20),
			CallTimeout: 10 * time.Second,
			Progress:    Progress(pick(0, 0, 1, 2)),
		}
	}
	var err error
	if w.client, err = NewNode(opts(w.cdom)); err != nil {
		return nil, err
	}
	if w.server, err = NewNode(opts(w.sdom)); err != nil {
		return nil, err
	}
	w.srv, err = w.server.Serve("server", w, ServeOptions{MaxCalls: pick(1, 3)})
	if err != nil {
		return nil, err
	}
	if w.arena, err = mem.NewArena(4<<16, nil); err == nil {
		err = w.arena.Attach(w.cdom)
	}
	return w, err
}

// get returns the connection, and lets it break a little later now and then.
func (w *world) get(ctx context.Context) (*Conn, error) {
	w.breaking.Lock()
	defer w.breaking.Unlock()
	if w.conn == nil || w.conn.Err() != nil {
		c, err := w.client.Dial(ctx, "server")
		if err != nil {
			return nil, err
		}
		w.conn = c
	}
	c := w.conn
	if w.rng.IntN(12) == 0 {
		w.broken.Store(true)
		w.net.BreakAfter(c.ep, 1+w.rng.IntN(80))
	}
	return c, nil
}

// act makes one random request and compares.
func (w *world) act(ctx context.Context, g, i int, rng *rand.Rand) error {
	out := fabric.Sge{Reg: w.arena.Region(), Buf: w.arena.Bytes()[2*g<<16:][:1<<16]}
	in := fabric.Sge{Reg: w.arena.Region(), Buf: w.arena.Bytes()[(2*g+1)<<16:][:1<<16]}
	id := uint64(g)<<32 | uint64(i)
	if rng.IntN(4) == 0 {
		c, err := w.get(ctx)
		if err != nil {
			return nil // it broke while it was made
		}
		req := Request{Op: opSum, Level: Level(rng.IntN(3))}
		req.Body = binary.BigEndian.AppendUint64(nil, id)
		if c.Send(ctx, &req) == nil {
			w.sent.Add(id)
		}
		return nil
	}
	c, err := w.get(ctx)
	if err != nil {
		return nil
	}
	gone, cancel := context.WithCancel(ctx)
	defer cancel()
	given := rng.IntN(3) == 0
	if given {
		time.AfterFunc(time.Duration(rng.IntN(150))*time.Microsecond, cancel)
	}
	err = oneModelCall(gone, c, rng, out, in)
	switch kind := errs.KindOf(err); {
	case kind == errs.Canceled && given, kind == errs.Disconnected && w.broken.Load(),
		kind == errs.TooBig: // a list of pieces that no message of this world holds
		return stays(in.Buf)
	case kind == errs.Perm && given: // the server may be told before it is told why
		return stays(in.Buf)
	}
	return err
}

// stays is untouched for a world: a look at memory that nobody may write any more.
func stays(b []byte) error {
	for i := range b {
		b[i] = 0xA5
	}
	for range 3 {
		time.Sleep(10 * time.Microsecond)
		for i := range b {
			if b[i] != 0xA5 {
				return fmt.Errorf("memory changed at byte %d after the call had returned", i)
			}
		}
	}
	return nil
}

// run is the whole life of a world.
func (w *world) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	failures := make(chan error, 2)
	for g := range 2 {
		go func() {
			rng := rand.New(rand.NewPCG(w.seed, uint64(g)))
			var err error
			for i := 0; i < 8 && err == nil; i++ {
				err = w.act(ctx, g, i, rng)
			}
			failures <- err
		}()
	}
	err := errors.Join(<-failures, <-failures)
	if err == nil {
		err = w.settle()
	}
	return errors.Join(err, w.close())
}

// settle waits until nothing is under way and compares what is left.
func (w *world) settle() error {
	var err error
	for i := 0; i < 3000; i++ {
		if err = w.settled(); err == nil {
			break
		}
		time.Sleep(time.Duration(min(i, 50)) * 20 * time.Microsecond)
	}
	if err != nil {
		return err
	}
	if sum := w.oneWay.Load(); !w.broken.Load() && sum != w.sent.Load() {
		return fmt.Errorf("one-way messages add up to %d, sent were %d", sum, w.sent.Load())
	}
	return nil
}

func (w *world) settled() error {
	w.breaking.Lock()
	c := w.conn
	w.breaking.Unlock()
	if c == nil || c.err() != nil {
		if s := w.srv.Stats(); s.Conns != 0 || s.Running != 0 {
			return fmt.Errorf("the server still has %+v", s)
		}
		return nil
	}
	if s := w.srv.Stats(); s.Conns != 1 {
		return fmt.Errorf("the server has %d connections", s.Conns)
	}
	r := &rig{conn: c, srv: w.srv}
	return settled(r)
}

// close ends the world; nothing of its memory may be left.
func (w *world) close() error {
	err := errors.Join(w.client.Close(), w.server.Close(), w.arena.Close())
	if m := w.server.Stats().Memory; m.EagerBytes != 0 || m.MappedBytes != 0 {
		err = errors.Join(err, fmt.Errorf("the server's memory is still there: %+v", m))
	}
	return errors.Join(err, w.cdom.Close(), w.sdom.Close())
}

func runSeed(seed uint64) error {
	w, err := newWorld(seed)
	if err == nil {
		err = w.run()
	}
	if err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	return nil
}

// TestThousandsOfSeeds is short worlds, as many as fit.
func TestThousandsOfSeeds(t *testing.T) {
	count := 1000
	if raceEnabled {
		count = 100
	}
	first := rand.Uint64()
	t.Logf("from seed %d on", first)
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !t.Failed() {
				i := next.Add(1) - 1
				if i >= uint64(count) {
					return
				}
				if err := runSeed(first + i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
