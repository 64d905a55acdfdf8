package msg

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/seg"
)

// fuse is a context that ends at the n-th look at it: cancellation at every moment at which anybody
// could notice it.
type fuse struct {
	context.Context
	left atomic.Int32
	once sync.Once
	done chan struct{}
}

func newFuse(looks int) *fuse {
	f := &fuse{Context: context.Background(), done: make(chan struct{})}
	f.left.Store(int32(looks))
	return f
}

func (f *fuse) look() bool {
	if f.left.Add(-1) < 0 {
		f.once.Do(func() { close(f.done) })
		return true
	}
	return false
}

func (f *fuse) Done() <-chan struct{} {
	f.look()
	return f.done
}

func (f *fuse) Err() error {
	if f.look() {
		return context.Canceled
	}
	return nil
}

// TestCancelAtEveryMoment gives up calls of every kind at every look at their context.
func TestCancelAtEveryMoment(t *testing.T) {
	for _, p := range and(simProviders()[1], shmProvider(t)) {
		t.Run(p.name, func(t *testing.T) {
			r := newRigFor(t, p, echo, func(client, server *Options) {
				client.Credits, client.Window = 3, 50000
			})
			mem := memory(t, r.cdom, 80000)
			for _, n := range []int{0, 1000, 20000, 40000} {
				missed := 0
				for looks := 0; missed < 3 && looks < 60; looks++ {
					out := fabric.Sge{Reg: mem.Reg, Buf: mem.Buf[:n]}
					in := fabric.Sge{Reg: mem.Reg, Buf: mem.Buf[40000:][:n]}
					req := Request{Out: contig(out), In: contig(in)}
					err := r.conn.Call(newFuse(looks), &req, &Reply{})
					if err == nil {
						missed++
					} else if !errors.Is(err, errs.Canceled) {
						t.Fatalf("%d bytes, look %d: %v", n, looks, err)
					} else if err := stays(in.Buf); err != nil {
						t.Fatalf("%d bytes, look %d: %v", n, looks, err)
					}
				}
			}
			if err := quiet(r); err != nil {
				t.Fatal(err)
			}
			if err := call(r.conn, 20*time.Second, &Request{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestClientThatBreaksItsPromises: one that posts fewer receives than it said, and one that sends
// more than its credits, lose their connections; nobody else notices.
func TestClientThatBreaksItsPromises(t *testing.T) {
	r := newRigFor(t, simProviders()[0], echo, nil)
	deaf := newRaw(t, r, false)
	one := memory(t, r.cdom, 16<<10)
	if err := deaf.ep.PostRecv([]fabric.Recv{{Reg: one.Reg, Buf: one.Buf}}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		msg := rawRequest(uint64(i), 0, nil, nil)
		_ = deaf.ep.Post([]fabric.WR{{Op: fabric.OpSend, Local: []fabric.Sge{{Buf: msg}}}})
	}
	greedy := newRaw(t, r, true)
	for i := range 500 {
		msg := rawRequest(uint64(i), 0, nil, nil)
		_ = greedy.ep.Post([]fabric.WR{{Op: fabric.OpSend, Local: []fabric.Sge{{Buf: msg}}}})
	}
	await(t, func() bool { return r.srv.Stats().Conns == 1 })
	if err := call(r.conn, 20*time.Second, &Request{}); err != nil {
		t.Fatal(err)
	}
	if err := quiet(r); err != nil {
		t.Fatal(err)
	}
}

// TestBillionPiecesCostNothing: what is described is refused before it is expanded.
func TestBillionPiecesCostNothing(t *testing.T) {
	r := newRigFor(t, simProviders()[0], echo, nil)
	p := newRaw(t, r, true)
	billion := seg.Strided(seg.Vector{Block: 1, Dims: []seg.Dim{{Count: 1e9, Stride: 2}}})
	body := describeOne(segment.Out, fabric.Remote{Key: 1, Len: 4e9}, billion)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for i := range 100 {
		p.send(rawRequest(uint64(i), 1, body, nil))
		if h, err := p.answer(); err != nil || h.Status != errs.TooBig {
			t.Fatalf("%+v, %v", h, err)
		}
		if err := p.ep.PostRecv([]fabric.Recv{{Context: uint64(i % 16), Buf: p.in[i%16]}}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("a hundred of them allocated %d bytes", grown)
	}
	if d := time.Since(start); d > time.Minute {
		t.Errorf("a hundred of them took %v", d)
	}
}

// TestOthersKeepTheirShare measures what a modest client gets beside one that floods the server
// with requests of the highest level over several connections.
func TestOthersKeepTheirShare(t *testing.T) {
	h := HandlerFunc(func(_ context.Context, c *Call) {
		time.Sleep(200 * time.Microsecond)
		_ = c.Reply(nil, 0)
	})
	r := newRig(t, simProviders()[0], h, func(_, server *Options) { server.Age = time.Millisecond })
	srv, err := r.server.Serve("shared", h, ServeOptions{MaxCalls: 1})
	if err != nil {
		t.Fatal(err)
	}
	dial := func() *Conn {
		c, err := r.client.Dial(context.Background(), srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	measure := func(level Level) (modest, all uint64) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 3 {
			c := dial()
			for range 16 {
				wg.Go(func() {
					for ctx.Err() == nil {
						_ = c.Call(ctx, &Request{Level: level}, &Reply{})
					}
				})
			}
		}
		c := dial()
		await(t, func() bool { return srv.Stats().Queued > 20 })
		before := srv.Stats().Calls
		for range 40 {
			if err := call(c, 20*time.Second, &Request{}); err != nil {
				t.Fatal(err)
			}
		}
		all = srv.Stats().Calls - before
		cancel()
		wg.Wait()
		return 40, all
	}
	// Four connections take turns: a quarter each, less what the modest one does not wait.
	if modest, all := measure(0); modest*16 < all {
		t.Errorf("at the same level it got %d of %d", modest, all)
	}
	// Those of a higher level may go before each of its own for a millisecond.
	if modest, all := measure(1); modest*20 < all {
		t.Errorf("at a lower level it got %d of %d", modest, all)
	}
}

// TestMemoryThatChangesUnderTheServer: over shared memory a client scribbles over its data while it
// is being served. The server's copy stays what it was.
func TestMemoryThatChangesUnderTheServer(t *testing.T) {
	p := shmProvider(t)
	arenas := shm.NewArenas()
	client, err := shm.Open(shm.Options{Arenas: arenas})
	if err != nil {
		t.Fatal(err)
	}
	plain := p.open
	p.open = func(t testing.TB, seed uint64) (n *sim.Net, c, s fabric.Domain) {
		n, c, s = plain(t, seed)
		_ = c.Close()
		return n, client, s
	}
	var changed atomic.Int32
	r := newRig(t, p, HandlerFunc(func(ctx context.Context, c *Call) {
		buf := make([]byte, c.OutLen())
		if err := c.Pull(ctx, 0, []fabric.Sge{{Buf: buf}}); err != nil {
			_ = c.Fail(err)
			return
		}
		first := sha256.Sum256(buf)
		time.Sleep(500 * time.Microsecond)
		if sha256.Sum256(buf) != first {
			changed.Add(1)
		}
		_ = c.Reply(nil, 0)
	}), nil)
	a, err := mem.NewArena(1<<18, arenas)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Attach(client); err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	raceless := a.Bytes()
	for i := range 60 {
		n := []int{20000, 200000}[i%2]
		out := fabric.Sge{Reg: a.Region(), Buf: raceless[:n]}
		done := make(chan error, 1)
		go func() { done <- call(r.conn, 20*time.Second, &Request{Out: contig(out)}) }()
		if !raceEnabled { // which is a race, on purpose, between two processes in life
			for j := range 2000 {
				raceless[(j*997)%n] = byte(rand.Uint32())
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if n := changed.Load(); n != 0 {
		t.Fatalf("%d times the server's copy changed", n)
	}
	if err := quiet(r); err != nil {
		t.Fatal(err)
	}
}
