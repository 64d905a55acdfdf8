package msg

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func TestOneWayMessages(t *testing.T) {
	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			var sum, bytes atomic.Uint64
			r := newRigFor(t, p, func(d fabric.Domain) Handler {
				return HandlerFunc(func(ctx context.Context, c *Call) {
					if !c.OneWay() {
						_ = c.Reply(nil, 0)
						return
					}
					buf := make([]byte, c.OutLen())
					reg, err := d.Register(buf)
					if err == nil {
						err = c.Pull(ctx, 0, []fabric.Sge{{Reg: reg, Buf: buf}})
						_ = reg.Close()
					}
					sum.Add(uint64(binary.BigEndian.Uint32(c.Body())))
					for _, b := range buf {
						bytes.Add(uint64(b))
					}
					_ = c.Fail(err) // nobody learns of it
				})
			}, func(client, _ *Options) { client.Credits = 4 })
			out := memory(t, r.cdom, 30000)
			want := uint64(0)
			for i := range 60 {
				out.Buf[0], out.Buf[20000] = 1, 1
				req := Request{More: [][]byte{{0, 0}, {0, byte(i)}}}
				switch i % 3 {
				case 1:
					req.Out = contig(fabric.Sge{Reg: out.Reg, Buf: out.Buf[:500]})
					want++
				case 2:
					req.Out = contig(out)
					want += 2
				}
				// What does not ride inline is waited for, and then the handler's word is heard.
				err := r.conn.Send(t.Context(), &req)
				if i%3 != 2 && err != nil || i%3 == 2 && errs.KindOf(err) != errs.IO {
					t.Fatal(i, err)
				}
				clear(out.Buf) // ours again
			}
			if err := call(r.conn, 20*time.Second, &Request{}); err != nil {
				t.Fatal(err)
			}
			if err := quiet(r); err != nil {
				t.Fatal(err)
			}
			if sum.Load() != 60*59/2 || bytes.Load() != want {
				t.Fatalf("sums %d and %d", sum.Load(), bytes.Load())
			}
			// The handlers' last words may come behind the answer of the call above.
			for end := time.Now().Add(time.Minute); r.client.Stats().LateFailures < 40 &&
				time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			s := r.srv.Stats()
			if s.OneWay != 60 || r.client.Stats().LateFailures != 40 {
				t.Fatalf("%+v, %+v", s, r.client.Stats())
			}
			err := r.conn.Send(t.Context(), &Request{In: contig(out)})
			if errs.KindOf(err) != errs.Invalid {
				t.Fatalf("with an In segment: %v", err)
			}
		})
	}
}

// TestClientWindow bounds what a server may send to, and fetch from, one connection at once.
func TestClientWindow(t *testing.T) {
	var now, most atomic.Int64
	r := newRig(t, simProviders()[0], HandlerFunc(func(_ context.Context, c *Call) {
		n := now.Add(c.InLen() + c.OutLen())
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); {
			old = most.Load()
		}
		time.Sleep(time.Millisecond)
		now.Add(-c.InLen() - c.OutLen())
		_ = c.Reply(nil, 0)
	}), func(client, _ *Options) { client.Window = 100_000 })
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			req := Request{In: contig(memory(t, r.cdom, 40_000))}
			if i%2 == 0 {
				req = Request{Out: contig(memory(t, r.cdom, 300_000))} // alone in its window
			}
			if err := call(r.conn, 20*time.Second, &req); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if m := most.Load(); m != 300_000 {
		t.Fatalf("up to %d bytes outstanding", m)
	}
	if err := quiet(r); err != nil {
		t.Fatal(err)
	}
}

// mute is a listener that accepts, posts receives and never answers.
func mute(t testing.TB, d fabric.Domain, n *Node, addr string) {
	l, err := d.Connector().Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := n.config(n.rungs[0], 8)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		ep, err := l.Accept(context.Background(),
			func(fabric.Peer) (fabric.EndpointConfig, error) { return cfg, nil })
		if err != nil {
			return
		}
		for i := range cfg.RecvDepth {
			_ = ep.PostRecv([]fabric.Recv{{Context: uint64(i), Buf: make([]byte, 16<<10)}})
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
}

func TestMutePeerFailsEverythingWithinABound(t *testing.T) {
	r := newRig(t, simProviders()[0], answerer(), func(client, _ *Options) {
		client.PeerTimeout, client.KeepAlive = 600*time.Millisecond, 200*time.Millisecond
	})
	mute(t, r.sdom, r.server, "mute")
	conn, err := r.client.Dial(t.Context(), "mute")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	failures := make(chan error, 12)
	for range 12 { // four more than there are credits
		go func() { failures <- conn.Call(context.Background(), &Request{}, &Reply{}) }()
	}
	for range 12 {
		if err := <-failures; errs.KindOf(err) != errs.Disconnected {
			t.Error(err)
		}
	}
	if d := time.Since(start); d > 9*time.Second {
		t.Errorf("only after %v", d)
	}
	// The other peer has been as silent as this one, but answers when it is asked.
	if err := call(r.conn, 20*time.Second, &Request{}); err != nil {
		t.Errorf("the other connection: %v", err)
	}
}

func TestIdlePeersAreKept(t *testing.T) {
	for _, p := range and(simProviders()[1]) {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, p, answerer(), func(client, server *Options) {
				client.KeepAlive, server.KeepAlive = 5*time.Millisecond, 7*time.Millisecond
				client.PeerTimeout, server.PeerTimeout = 20*time.Second, 20*time.Second
			})
			before := r.conn.heard.Load()
			await(t, func() bool { return r.conn.heard.Load() > before+2 }) // they ask each other
			if err := r.conn.Err(); err != nil {
				t.Fatal("an idle connection ended: ", err)
			}
		})
	}
}
