package msg

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

// TestStartedRequests: goroutines that each have as many requests under way as there are credits
// for, and finish them in any order, between calls of others.
func TestStartedRequests(t *testing.T) {
	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, p, HandlerFunc(func(_ context.Context, c *Call) {
				_ = c.Reply(c.Body(), 0)
			}), func(c, _ *Options) { c.Credits = 6 })
			seed := seedOf(t)
			var wg sync.WaitGroup
			for worker := range 4 {
				wg.Go(func() { startAndFinish(t, r.conn, rand.New(rand.NewPCG(seed, uint64(worker)))) })
			}
			wg.Wait()
			if u := r.conn.Credits(); u.Count != 0 {
				t.Errorf("credits are still out: %+v", u)
			}
		})
	}
}

func startAndFinish(t *testing.T, c *Conn, rng *rand.Rand) {
	ctx := context.Background()
	for range 50 {
		var under []Started
		var want []uint32
		for range 8 {
			v := rng.Uint32()
			st, ok := c.TryStart(ctx, &Request{Op: 2, Body: binary.BigEndian.AppendUint32(nil, v)})
			if ok {
				under, want = append(under, st), append(want, v)
			}
		}
		rng.Shuffle(len(under), func(i, k int) {
			under[i], under[k] = under[k], under[i]
			want[i], want[k] = want[k], want[i]
		})
		for i := range under {
			var rep Reply
			if err := under[i].Finish(ctx, &rep); err != nil {
				t.Error(err)
			} else if got := binary.BigEndian.Uint32(rep.Body); got != want[i] {
				t.Errorf("the answer to another request: %d, want %d", got, want[i])
			}
		}
		var rep Reply
		if err := c.Call(ctx, &Request{Op: 2, Body: make([]byte, 4)}, &rep); err != nil {
			t.Error(err)
		}
	}
}

// TestStartNeverWaits: without a credit, on a connection that has ended, and with a context that
// has ended nothing is started; what was started ends with the connection.
func TestStartNeverWaits(t *testing.T) {
	h := &ordered{open: make(chan struct{})}
	r := newRig(t, tcpProvider(), h, func(c, _ *Options) { c.Credits = 2 })
	ctx, cancel := context.WithCancel(context.Background())
	req := &Request{Op: 1}
	first, ok := r.conn.TryStart(ctx, req)
	if !ok {
		t.Fatal("nothing was started")
	}
	second, ok := r.conn.TryStart(ctx, req)
	if !ok {
		t.Fatal("nothing was started")
	}
	if _, ok := r.conn.TryStart(ctx, req); ok {
		t.Error("started without a credit")
	}
	cancel()
	var rep Reply
	if err := first.Finish(ctx, &rep); errs.KindOf(err) != errs.Canceled {
		t.Errorf("after its context has ended: %v", err)
	}
	if err := first.Finish(ctx, &rep); errs.KindOf(err) != errs.Invalid {
		t.Errorf("finished twice: %v", err)
	}
	if _, ok := r.conn.TryStart(ctx, req); ok {
		t.Error("started with a context that has ended")
	}
	r.conn.Drop("the test")
	if err := second.Finish(context.Background(), &rep); errs.KindOf(err) != errs.Disconnected {
		t.Errorf("after the end of the connection: %v", err)
	}
	if _, ok := r.conn.TryStart(context.Background(), req); ok {
		t.Error("started on a connection that has ended")
	}
	close(h.open)
}

// TestReady: who has started requests hears of each reply, and of the end of the connection, while
// nobody waits; Finish does not wait then. Calls of others go on meanwhile.
func TestReady(t *testing.T) {
	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			h := &ordered{open: make(chan struct{})}
			r := newRig(t, p, HandlerFunc(func(ctx context.Context, c *Call) {
				if c.Header().Op == 1 {
					h.Serve(ctx, c)
					return
				}
				_ = c.Reply(c.Body(), 0)
			}), func(c, _ *Options) { c.Credits = 8 })
			ctx := context.Background()
			ready := make(chan int, 100)
			start := func(op uint16, i int) Started {
				st, ok := r.conn.TryStart(ctx, &Request{Op: op, Body: []byte{byte(i)},
					Ready: func() { ready <- i }})
				if !ok {
					t.Fatal("nothing was started")
				}
				return st
			}
			var rep Reply
			for round := range 50 {
				under := map[int]Started{}
				for i := range 4 {
					under[i] = start(2, i)
				}
				if round%2 == 0 {
					if err := r.conn.Call(ctx, &Request{Op: 2, Body: []byte{9}}, &rep); err != nil {
						t.Fatal(err)
					}
				}
				for len(under) > 0 {
					i := <-ready // from whoever polls
					st, ok := under[i]
					if !ok {
						t.Fatalf("told of request %d twice", i)
					}
					delete(under, i)
					ended, cancel := context.WithCancel(ctx)
					cancel() // it does not wait
					if err := st.Finish(ended, &rep); err != nil || rep.Body[0] != byte(i) {
						t.Fatalf("request %d: %v, %v", i, rep.Body, err)
					}
				}
			}
			st := start(1, 7) // it is not answered
			r.conn.Drop("the test")
			if i := <-ready; i != 7 {
				t.Errorf("told of request %d", i)
			}
			if err := st.Finish(ctx, &rep); errs.KindOf(err) != errs.Disconnected {
				t.Errorf("after the end of the connection: %v", err)
			}
			close(h.open)
		})
	}
}
