package budget

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

// TestNoUnitsAreLostWhenWaitersLeave lets units come at the moment in which those who wait for them
// give up, with waiters that are used again and again: none may be told of units that are not its
// own, and none may be lost.
func TestNoUnitsAreLostWhenWaitersLeave(t *testing.T) {
	const total, seeds = 10, 2000
	base := rand.Uint64()
	b := New(total)
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
					if u := b.Usage().Used; u < n || u > total {
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
	if u := b.Usage(); u.Used != 0 {
		t.Fatalf("%d units lost", u.Used)
	}
}

func TestWaitingAllocatesNothing(t *testing.T) {
	b := New(1)
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
