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
