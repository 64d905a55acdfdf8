package budget

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestNeverMoreThanTotal(t *testing.T) {
	b := New(100)
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
	if u := b.Usage(); u.Used != 0 {
		t.Fatalf("%d units lost", u.Used)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	b := New(10)
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
	b := New(10)
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
