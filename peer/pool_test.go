package peer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
)

func TestPoolSharesOneConnection(t *testing.T) {
	r := newRig(t)
	var asked atomic.Int32
	pool := NewPool(r.client, func(_ context.Context, id uint32) (string, error) {
		asked.Add(1)
		return r.srv.Addr(), nil
	})
	defer pool.Close()
	var mu sync.Mutex
	seen := map[*msg.Conn]bool{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c, err := pool.Get(context.Background(), 7)
			if err == nil {
				err = call(c, 20*time.Second, &msg.Request{})
			}
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			seen[c] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(seen) != 1 || asked.Load() != 1 {
		t.Fatalf("%d connections, %d addresses asked for", len(seen), asked.Load())
	}
}

func TestPoolReconnects(t *testing.T) {
	r := newRig(t)
	pool := NewPool(r.client, func(context.Context, uint32) (string, error) {
		return r.srv.Addr(), nil
	})
	defer pool.Close()
	first, err := pool.Get(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	r.faults.Break("")
	<-first.Done()
	second, err := pool.Get(context.Background(), 1)
	if err != nil || second == first {
		t.Fatalf("after a break: %v, the same connection: %v", err, second == first)
	}
	if err := call(second, 20*time.Second, &msg.Request{}); err != nil {
		t.Fatal(err)
	}
}

// TestPoolBacksOff: nobody listens at first. Attempts are few, and one succeeds once somebody
// does.
func TestPoolBacksOff(t *testing.T) {
	r := newRig(t)
	var attempts atomic.Int32
	pool := NewPool(r.client, func(context.Context, uint32) (string, error) {
		attempts.Add(1)
		return "later", nil
	})
	defer pool.Close()
	pool.backoff = Backoff{First: 20 * time.Millisecond, Max: 40 * time.Millisecond}
	go func() {
		time.Sleep(150 * time.Millisecond)
		if _, err := r.server.Serve("later", answerer(), msg.ServeOptions{}); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	quick := Backoff{First: time.Millisecond, Max: time.Millisecond}
	err := Retry(ctx, quick, func(ctx context.Context) error {
		c, err := pool.Get(ctx, 1)
		if err != nil {
			return err
		}
		return c.Call(ctx, &msg.Request{}, &msg.Reply{})
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := attempts.Load(); n < 2 || n > 16 {
		t.Fatalf("%d attempts in 150 ms with pauses of 10 to 40 ms", n)
	}
}

func TestPoolAfterClose(t *testing.T) {
	r := newRig(t)
	block := make(chan struct{})
	pool := NewPool(r.client, func(ctx context.Context, id uint32) (string, error) {
		close(block)
		<-ctx.Done()
		return "", ctx.Err()
	})
	got := make(chan error, 1)
	go func() {
		_, err := pool.Get(context.Background(), 1)
		got <- err
	}()
	<-block
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := pool.Get(ctx, 1); !errors.Is(err, errs.TimedOut) {
		t.Errorf("a waiting Get: %v", err)
	}
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err == nil {
		t.Error("an attempt survived Close")
	}
	if _, err := pool.Get(context.Background(), 1); !errors.Is(err, errs.Closed) {
		t.Errorf("Get after Close: %v", err)
	}
}

func TestRetry(t *testing.T) {
	quick := Backoff{First: time.Microsecond, Max: time.Millisecond}
	for _, c := range []struct {
		name  string
		fails []error
		calls int
		want  errs.Kind
	}{
		{"at once", nil, 1, errs.OK},
		{"mends", []error{errs.Disconnected, errs.Shutdown, errs.Again}, 4, errs.OK},
		{"does not mend", []error{errs.Again, errs.NotFound}, 2, errs.NotFound},
	} {
		calls := 0
		err := Retry(context.Background(), quick, func(context.Context) error {
			if calls++; calls <= len(c.fails) {
				return c.fails[calls-1]
			}
			return nil
		})
		if calls != c.calls || errs.KindOf(err) != c.want {
			t.Errorf("%s: %d calls, %v", c.name, calls, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	err := Retry(ctx, quick, func(context.Context) error { return errs.Again })
	if !errors.Is(err, errs.Again) {
		t.Errorf("when ctx ends the last error must be told, got %v", err)
	}
}

func TestBackoffStaysWithinItsBounds(t *testing.T) {
	b := Backoff{First: 8 * time.Millisecond, Max: 100 * time.Millisecond}.withDefaults()
	for failures := 1; failures < 100; failures++ {
		most := b.Max
		if failures < 5 {
			most = min(b.Max, b.First<<(failures-1))
		}
		if d := b.wait(failures); d < most/2 || d > most {
			t.Fatalf("%v after %d failures, between %v and %v allowed", d, failures, most/2, most)
		}
	}
}
