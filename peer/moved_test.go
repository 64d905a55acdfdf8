package peer

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
)

// TestPoolFollowsAPeer: calls to a peer that has moved end at once, as if it were lost, and the
// next connection is made to where it is. One that is there already stays.
func TestPoolFollowsAPeer(t *testing.T) {
	r := newRig(t)
	block := make(chan struct{})
	mute := msg.HandlerFunc(func(_ context.Context, c *msg.Call) {
		<-block
		_ = c.Reply(nil, 0)
	})
	if _, err := r.server.Serve("old", mute, msg.ServeOptions{}); err != nil {
		t.Fatal(err)
	}
	defer close(block)
	var addr atomic.Pointer[string]
	at := func(s string) { addr.Store(&s) }
	at("old")
	pool := NewPool(r.client, func(context.Context, uint32) (string, error) {
		return *addr.Load(), nil
	})
	defer pool.Close()
	c, err := pool.Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	pool.Moved(1, "old") // it has not
	pool.Moved(2, "new") // nobody knows that one
	if same, err := pool.Get(t.Context(), 1); err != nil || same != c {
		t.Fatalf("a peer that has not moved is left: %v", err)
	}
	got := make(chan error, 1)
	go func() { got <- call(c, time.Minute, &msg.Request{}) }()
	time.Sleep(10 * time.Millisecond)
	at(r.srv.Addr())
	pool.Moved(1, r.srv.Addr())
	if err := <-got; errs.KindOf(err) != errs.Disconnected {
		t.Fatalf("a call to where the peer was: %v", err)
	}
	next, err := pool.Get(t.Context(), 1)
	if err == nil {
		err = call(next, time.Minute, &msg.Request{})
	}
	if err != nil || next == c {
		t.Fatalf("the peer is not found where it is: %v", err)
	}
}

// TestPoolLeavesAnAttempt: an attempt that goes where the peer is not any more, or has yet to
// begin, does not keep anybody waiting.
func TestPoolLeavesAnAttempt(t *testing.T) {
	r := newRig(t)
	var moved atomic.Bool
	d := dialer(func(ctx context.Context, addr string) (*msg.Conn, error) {
		if addr == "nowhere" {
			<-ctx.Done() // packets are lost
			return nil, ctx.Err()
		}
		return r.client.Dial(ctx, addr)
	})
	pool := NewPool(d, func(context.Context, uint32) (string, error) {
		if moved.Load() {
			return r.srv.Addr(), nil
		}
		return "nowhere", nil
	})
	defer pool.Close()
	got := make(chan error, 1)
	go func() {
		_, err := pool.Get(context.Background(), 1)
		got <- err
	}()
	await(t, func() bool {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		e := pool.byID[1]
		return e != nil && e.attempt != nil && e.attempt.addr == "nowhere"
	})
	moved.Store(true)
	pool.Moved(1, r.srv.Addr())
	if err := <-got; errs.KindOf(err) != errs.Disconnected {
		t.Fatalf("an attempt to reach where the peer was: %v", err)
	}
	if _, err := pool.Get(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

type dialer func(ctx context.Context, addr string) (*msg.Conn, error)

func (d dialer) Dial(ctx context.Context, addr string) (*msg.Conn, error) { return d(ctx, addr) }
