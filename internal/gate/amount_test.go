package gate

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

func TestNeverMoreThanTotal(t *testing.T) {
	b := New(Options{Bytes: 100})
	var held atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 500 {
				n := rng.Int64N(101)
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				if err := b.Acquire(ctx, n); err == nil {
					if h := held.Add(n); h > 100 {
						t.Errorf("%d units held of 100", h)
					}
					held.Add(-n)
					b.Release(n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if u := b.Usage(); u.Bytes != 0 {
		t.Fatalf("%d units lost", u.Bytes)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	b := New(Options{Bytes: 10})
	if err := b.Acquire(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	order := make(chan int, 2)
	start := func(i int, n int64) {
		before := b.Usage().Waits
		go func() {
			if b.Acquire(t.Context(), n) == nil {
				order <- i
				b.Release(n)
			}
		}()
		for b.Usage().Waits == before {
			time.Sleep(time.Millisecond)
		}
	}
	start(1, 10)
	start(2, 1)
	if b.TryAcquire(0) {
		t.Fatal("TryAcquire overtook a waiter")
	}
	b.Release(10)
	if first := <-order; first != 1 {
		t.Fatalf("taker %d overtook an earlier one", first)
	}
	<-order
}

func TestAWaiterThatLeavesLetsOthersPass(t *testing.T) {
	b := New(Options{Bytes: 10})
	_ = b.Acquire(t.Context(), 5)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { left <- b.Acquire(ctx, 10) }()
	for b.Usage().Waits == 0 {
		time.Sleep(time.Millisecond)
	}
	small := make(chan error)
	go func() { small <- b.Acquire(t.Context(), 5) }()
	for b.Usage().Waits < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if <-left == nil {
		t.Fatal("a canceled taker got its units")
	}
	if err := <-small; err != nil {
		t.Fatal(err)
	}
	b.Release(10)
}

// TestNoUnitsAreLostWhenWaitersLeave lets units come at the moment in which those who wait for them
// give up, with waiters that are used again and again: none may be told of units that are not its
// own, and none may be lost.
func TestNoUnitsAreLostWhenWaitersLeave(t *testing.T) {
	const total, seeds = 10, 2000
	base := rand.Uint64()
	b := New(Options{Bytes: total})
	for seed := base; seed != base+seeds; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		ctx, cancel := context.WithCancel(context.Background())
		if !b.TryAcquire(total) {
			t.Fatalf("seed %d: units are lost: %+v", seed, b.Usage())
		}
		var wg sync.WaitGroup
		for range 4 {
			n := 1 + rng.Int64N(total)
			wg.Go(func() {
				if b.Acquire(ctx, n) == nil {
					if u := b.Usage().Bytes; u < n || u > total {
						t.Errorf("seed %d: %d units are used by one who has %d", seed, u, n)
					}
					b.Release(n)
				}
			})
		}
		for _, fn := range []func(){cancel, func() { b.Release(total) }} {
			turns := rng.IntN(30)
			wg.Go(func() {
				for range turns {
					runtime.Gosched()
				}
				fn()
			})
		}
		wg.Wait()
	}
	if u := b.Usage(); u.Bytes != 0 {
		t.Fatalf("%d units lost", u.Bytes)
	}
}

func TestWaitingAllocatesNothing(t *testing.T) {
	b := New(Options{Bytes: 1})
	done := make(chan struct{})
	work := make(chan struct{})
	go func() {
		for range work {
			_ = b.Acquire(context.Background(), 1)
			b.Release(1)
			done <- struct{}{}
		}
	}()
	defer close(work)
	n := alloctest.PerRun(0, 200, func() {
		_ = b.Acquire(context.Background(), 1)
		waits := b.Usage().Waits
		work <- struct{}{}
		for b.Usage().Waits == waits {
			runtime.Gosched()
		}
		b.Release(1)
		<-done
	})
	if n > 0 {
		t.Errorf("%.1f allocations a wait", n)
	}
}
