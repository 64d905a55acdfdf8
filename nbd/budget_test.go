package nbd

import (
	"context"
	"sync"
	"testing"
	"time"
)

func TestBudgetIsFirstComeFirstServed(t *testing.T) {
	b := newBudget(10)
	if !b.try(8) || b.try(3) {
		t.Fatal("8 of 10 must fit and 3 more must not")
	}
	order := make(chan int, 2)
	wait := func(id int, n int64, queued int) {
		go func() {
			if err := b.acquire(context.Background(), n); err != nil {
				t.Error(err)
			}
			order <- id
		}()
		eventually(t, "queued", func() bool { _, _, _, w := b.snapshot(); return w == queued })
	}
	wait(1, 9, 1)
	wait(2, 1, 2)
	if b.try(1) {
		t.Error("overtook those who wait")
	}
	b.release(8)
	if first := <-order; first != 1 && first != 2 {
		t.Errorf("%d", first)
	}
	<-order
	if used, peak, waits, _ := b.snapshot(); used != 10 || peak != 10 || waits != 2 {
		t.Errorf("used %d, peak %d, waits %d", used, peak, waits)
	}
}

// TestBudgetAbandoned: who gives up lets those behind him pass.
func TestBudgetAbandoned(t *testing.T) {
	b := newBudget(10)
	b.try(5)
	ctx, cancel := context.WithCancel(context.Background())
	large := make(chan error)
	go func() { large <- b.acquire(ctx, 10) }()
	eventually(t, "queued", func() bool { _, _, _, w := b.snapshot(); return w == 1 })
	small := make(chan error)
	go func() { small <- b.acquire(context.Background(), 5) }()
	eventually(t, "queued", func() bool { _, _, _, w := b.snapshot(); return w == 2 })
	cancel()
	if err := <-large; err == nil {
		t.Error("a cancelled wait succeeded")
	}
	if err := <-small; err != nil {
		t.Error(err)
	}
}

func TestBudgetNeverExceeded(t *testing.T) {
	b := newBudget(100)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 200 {
				n := int64(1 + (i*31+j*17)%100)
				wait := time.Duration(j%3) * time.Millisecond
				ctx, cancel := context.WithTimeout(context.Background(), wait)
				if b.acquire(ctx, n) == nil {
					b.release(n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if used, peak, _, waiting := b.snapshot(); used != 0 || peak > 100 || waiting != 0 {
		t.Errorf("used %d, peak %d, waiting %d", used, peak, waiting)
	}
}

func TestPoolClasses(t *testing.T) {
	p := &pool{idleMax: 1 << 20}
	for _, n := range []int{1, 4095, 4096, 4097, 65536, 65537, 1 << 20, 64 << 20} {
		buf := p.get(n)
		most := 2 * int64(max(n, 4096))
		if len(buf) != n || int64(cap(buf)) != classBytes(n) || classBytes(n) >= most {
			t.Errorf("get(%d): %d of %d, class %d", n, len(buf), cap(buf), classBytes(n))
		}
		p.put(buf)
		if p.idle > p.idleMax {
			t.Errorf("%d bytes idle", p.idle)
		}
	}
	buf := p.get(5000)
	buf[0] = 42
	p.put(buf)
	if again := p.get(8000); again[0] != 42 {
		t.Error("a buffer of the same class was not reused")
	}
}
