package msg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg/internal/eager"
	"github.com/sluice-storage/sluice/wire"
)

func held(c *Conn) (held, free uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held.Sets()
}

// useSlots sends data of a size for slots until the connection has some.
func useSlots(t testing.TB, r *rig, c *Conn, n int) {
	t.Helper()
	out := memory(t, r.cdom, n)
	for range 200 {
		if err := call(c, 20*time.Second, &Request{Out: contig(out)}); err != nil {
			t.Fatal(err)
		}
		if h, _ := held(c); h != 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the server gave no slots")
}

func TestEagerSlotsComeAndGo(t *testing.T) {
	for _, p := range and(simProviders()[0], simProviders()[1]) {
		t.Run(p.name, func(t *testing.T) {
			r := newRigFor(t, p, echo, func(_, server *Options) {
				server.EagerIdle = 30 * time.Millisecond
			})
			useSlots(t, r, r.conn, 20000)
			if s := r.server.Stats().Memory; s.EagerBytes == 0 || s.InUseBytes != s.EagerBytes {
				t.Fatalf("%+v", s)
			}
			for n := 4097; n <= 64<<10; n += 7001 {
				out, in := memory(t, r.cdom, n), memory(t, r.cdom, n)
				pattern(out.Buf, uint64(n))
				req := Request{Out: contig(out), In: contig(in)}
				if err := call(r.conn, 20*time.Second, &req); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(out.Buf, in.Buf) {
					t.Fatalf("%d bytes: other data came back", n)
				}
			}
			if err := quiet(r); err != nil {
				t.Fatal(err)
			}
			await(t, func() bool { return r.server.Stats().Memory.InUseBytes == 0 })
			if h, _ := held(r.conn); h != 0 {
				t.Fatalf("the idle client still holds %b", h)
			}
			useSlots(t, r, r.conn, 20000) // and again
		})
	}
}

// TestSlotsAreFreeWithTheAnswer: a client may give a slot back as soon as it has the answer, long
// before the server knows that the answer has left.
func TestSlotsAreFreeWithTheAnswer(t *testing.T) {
	r := newRigFor(t, simProviders()[1], echo, nil)
	useSlots(t, r, r.conn, 20000)
	out, in := memory(t, r.cdom, 20000), memory(t, r.cdom, 20000)
	for i := range 200 {
		err := call(r.conn, 20*time.Second, &Request{Out: contig(out), In: contig(in)})
		if err != nil {
			t.Fatal(err)
		}
		r.srv.mu.Lock()
		for s := range r.srv.conns {
			s.mu.Lock()
			if _, refs := s.lent.Slots(); refs != 0 {
				t.Errorf("call %d is answered, and its slot still in use", i)
			}
			s.mu.Unlock()
		}
		r.srv.mu.Unlock()
	}
}

// TestWhatWasPulledDoesNotChange: the client can write into its slot at any time; the server
// believes only what it has copied.
func TestWhatWasPulledDoesNotChange(t *testing.T) {
	pulled, changed := make(chan struct{}), make(chan struct{})
	var same bool
	r := newRig(t, simProviders()[0], HandlerFunc(func(ctx context.Context, c *Call) {
		if c.Header().Op == 0 {
			_ = c.Reply(nil, 0)
			return
		}
		buf := make([]byte, c.OutLen())
		_ = c.Pull(ctx, 0, []fabric.Sge{{Buf: buf}})
		before := bytes.Clone(buf)
		pulled <- struct{}{}
		<-changed
		same = c.out.Eager && bytes.Equal(before, buf) && buf[0] == 1
		_ = c.Reply(nil, 0)
	}), nil)
	useSlots(t, r, r.conn, 20000)
	out := memory(t, r.cdom, 20000)
	out.Buf[0] = 1
	done := make(chan error, 1)
	go func() { done <- call(r.conn, 20*time.Second, &Request{Op: 1, Out: contig(out)}) }()
	<-pulled
	h, free := held(r.conn)
	for i := range eager.MaxSlots {
		if (h&^free)&(1<<i) != 0 {
			wr := fabric.WR{Op: fabric.OpWrite, Context: kindPlain,
				Local:  []fabric.Sge{{Buf: bytes.Repeat([]byte{9}, 100)}},
				Remote: r.conn.held.Remote(i).Slice(0, 100)}
			if err := r.conn.ep.Post([]fabric.WR{wr}); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(changed)
	if err := <-done; err != nil || !same {
		t.Fatalf("%v; it stayed the same: %v", err, same)
	}
}

// TestSlotsOfDeadClients: clients that die holding slots give them back; others keep theirs.
func TestSlotsOfDeadClients(t *testing.T) {
	r := newRigFor(t, simProviders()[1], echo, func(_, server *Options) {
		server.Memory, server.EagerIdle = 1<<20, time.Minute
	})
	useSlots(t, r, r.conn, 20000)
	for round := range 12 { // together they would need more than there is
		c := r.dial(t)
		useSlots(t, r, c, 20000)
		if s := r.server.Stats().Memory; s.EagerBytes > 1<<19 {
			t.Fatalf("round %d: %+v", round, s)
		}
		r.net.Break(c.ep)
		c.Close()
		await(t, func() bool { return r.srv.Stats().Conns == 1 })
	}
	if s := r.server.Stats().Memory; s.EagerBytes != 2*64<<10 {
		t.Fatalf("afterwards: %+v", s)
	}
	req := Request{Out: contig(memory(t, r.cdom, 20000))}
	if err := call(r.conn, 20*time.Second, &req); err != nil {
		t.Fatal(err)
	}
}

// TestSlotsAreBounded: many clients that want slots get no more than the memory.
func TestSlotsAreBounded(t *testing.T) {
	r := newRigFor(t, simProviders()[0], echo, func(_, server *Options) {
		server.Memory, server.EagerIdle = 1<<20, time.Minute
	})
	out := memory(t, r.cdom, 20000)
	for range 20 {
		c := r.dial(t)
		for range 5 {
			if err := call(c, 20*time.Second, &Request{Out: contig(out)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := r.server.Stats().Memory; s.EagerBytes != 1<<20 {
		t.Fatalf("%+v", s)
	}
}

// TestCanceledEagerCalls gives up calls whose data is in slots: the memory is the caller's again.
func TestCanceledEagerCalls(t *testing.T) {
	for _, p := range and(simProviders()[1]) {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, p, HandlerFunc(func(ctx context.Context, c *Call) {
				if c.Header().Op == 1 {
					<-ctx.Done()
				}
				_ = c.Fail(ctx.Err())
			}), nil)
			out := memory(t, r.cdom, 30000)
			for i := range 30 {
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(time.Duration(i*50)*time.Microsecond, cancel)
				err := r.conn.Call(ctx, &Request{Op: 1, Out: contig(out)}, &Reply{})
				cancel()
				if !errors.Is(err, errs.Canceled) {
					t.Fatal(err)
				}
			}
			if err := quiet(r); err != nil {
				t.Fatal(err)
			}
			h, free := held(r.conn)
			if h == 0 || h != free {
				t.Fatalf("slots %b, free %b", h, free)
			}
		})
	}
}

func TestForgedReturnsOfSlots(t *testing.T) {
	r := newRigFor(t, simProviders()[0], echo, nil)
	for name, h := range map[string]wire.Header{
		"never had":        {Kind: wire.KindControl, Op: opBack, RequestID: 1},
		"not asked":        {Kind: wire.KindControl, Op: opBack},
		"gift to a server": {Kind: wire.KindControl, Op: opGive},
	} {
		p := newRaw(t, r, true)
		p.send(h.Append(nil))
		if _, err := p.answer(); !errors.Is(err, errs.Disconnected) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEagerSlotsAreShared sends data of several callers through few slots at once.
func TestEagerSlotsAreShared(t *testing.T) {
	r := newRigFor(t, simProviders()[1], echo, func(client, server *Options) {
		client.Unit, server.Unit = 10_000, 10_000
		server.Memory = 512 << 10
	})
	const callers = 6
	failures := make(chan error, callers)
	seed := seedOf(t)
	for g := range callers {
		out, in := memory(t, r.cdom, 20000), memory(t, r.cdom, 20000)
		go func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			var err error
			for i := 0; i < 30 && err == nil; i++ {
				n := 5000 + rng.IntN(15000)
				pattern(out.Buf[:n], rng.Uint64())
				req := Request{
					Out: contig(fabric.Sge{Reg: out.Reg, Buf: out.Buf[:n]}),
					In:  contig(fabric.Sge{Reg: in.Reg, Buf: in.Buf[:n]}),
				}
				if err = call(r.conn, 20*time.Second, &req); err == nil &&
					!bytes.Equal(out.Buf[:n], in.Buf[:n]) {
					err = fmt.Errorf("seed %d: other data arrived than was sent", seed)
				}
			}
			failures <- err
		}()
	}
	var all []error
	for range callers {
		all = append(all, <-failures)
	}
	if err := errors.Join(append(all, quiet(r))...); err != nil {
		t.Fatal(err)
	}
}
