package wait

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

// TestContextIsUsedAgain says when a call's context serves the next request, and when it must not.
func TestContextIsUsedAgain(t *testing.T) {
	never := make(chan struct{})
	for name, row := range map[string]struct {
		limit time.Duration
		use   func(c *Context)
		again bool
	}{
		"nobody listened": {use: func(*Context) {}, again: true},
		"borrowed and returned": {limit: time.Hour, again: true, use: func(c *Context) {
			c.Lend()
			c.Return()
		}},
		"borrowed twice": {limit: time.Hour, again: true, use: func(c *Context) {
			c.Lend()
			c.Lend()
			c.Return()
			c.Return()
		}},
		"asked after its end": {use: func(c *Context) {
			c.End(context.Canceled)
			c.Lend()
			c.Return()
		}},
		"borrowed and kept": {use: func(c *Context) { c.Lend() }},
		"one of two returned": {use: func(c *Context) {
			c.Lend()
			c.Lend()
			c.Return()
		}},
		"handed out": {limit: time.Hour, use: func(c *Context) { c.Done() }},
		"canceled while somebody waited": {limit: time.Hour, use: func(c *Context) {
			c.Lend()
			c.End(context.Canceled)
			c.Return()
		}},
		"about to run out when it ends": {limit: time.Hour, use: func(c *Context) {
			c.Lend()
			c.timer.Stop() // as if it had gone off: it cannot be stopped any more
			c.Return()
		}},
		"run out while somebody waited": {limit: time.Millisecond, use: func(c *Context) {
			For(c, never)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := (&Context{}).Renew(row.limit)
			row.use(c)
			c.End(context.Canceled) // as the end of a request does
			if c.done != nil && !row.again {
				select {
				case <-c.done:
				default:
					t.Error("somebody may listen and is not told of the end")
				}
			}
			next := c.Renew(time.Hour)
			if (next == c) != row.again {
				t.Fatalf("used again: %v, want %v", next == c, row.again)
			}
			if err := next.Err(); err != nil {
				t.Fatalf("the next request begins with %v", err)
			}
			select {
			case <-next.Done():
				t.Fatal("the next request is told of an end that is not its own")
			default:
			}
		})
	}
}

// TestContextEndsOnlyItsOwnRequest lets requests end, be canceled and run out while others wait for
// something that comes at the same moment, with contexts that are used again and again. Whoever is
// told of an end must have been ended; whoever listens when there is one must be told.
func TestContextEndsOnlyItsOwnRequest(t *testing.T) {
	seeds := uint64(3000)
	if raceEnabled {
		seeds = 1000
	}
	base := rand.Uint64()
	var kept int
	for seed := base; seed != base+seeds && !t.Failed(); seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := &Context{}
		for range 6 {
			next := c.Renew([]time.Duration{0, time.Hour, 20 * time.Microsecond}[rng.IntN(3)])
			if next == c {
				kept++
			}
			c = next
			if !oneRequest(t, rng, c) {
				t.Fatalf("seed %d", seed)
			}
		}
	}
	if kept == 0 {
		t.Error("no context was used again")
	}
}

// oneRequest plays a request whose handler waits on some goroutines, and that may be canceled.
func oneRequest(t *testing.T, rng *rand.Rand, c *Context) bool {
	var wg sync.WaitGroup
	var canceled, failed atomic.Bool
	complain := func(what string) {
		failed.Store(true)
		t.Error(what)
	}
	cancel, limited := rng.IntN(3) == 0, c.limit == 20*time.Microsecond
	for range 1 + rng.IntN(3) {
		got, lag := make(chan int, 1), rng.IntN(20)
		wg.Go(func() {
			pause(lag)
			got <- 1
		})
		wg.Go(func() {
			if _, ok := For(c, got); ok {
				return
			}
			if c.Err() == nil || !canceled.Load() && !limited {
				complain("told of an end that there was not")
			}
		})
	}
	if cancel {
		lag := rng.IntN(20)
		wg.Go(func() {
			pause(lag)
			canceled.Store(true)
			c.End(context.Canceled)
		})
	}
	var handed <-chan struct{}
	if rng.IntN(8) == 0 {
		handed = c.Done()
	}
	left := rng.IntN(8) == 0
	told := make(chan struct{})
	if left { // somebody who may still be there when the call is over
		got := make(chan int)
		go func() {
			defer close(told)
			if _, ok := For(c, got); ok || c.Err() == nil {
				complain("told of something that there was not")
			}
		}()
	}
	wg.Wait()
	c.End(context.Canceled)
	if left {
		<-told
	}
	if handed != nil {
		<-handed
	}
	return !failed.Load()
}

func pause(times int) {
	for range times {
		runtime.Gosched()
	}
}

// TestWaitingAllocatesNothing: a request that waits uses what its context has.
func TestWaitingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c, got := &Context{}, make(chan int, 1)
	n := alloctest.PerRun(0, 500, func() {
		c = c.Renew(time.Hour)
		c.Lend()
		got <- 1
		For(c, got)
		c.Return()
		c.End(context.Canceled)
	})
	if n > 0 {
		t.Errorf("%.1f allocations a request", n)
	}
}

// TestReleasedContextsStayEnded: a context that was made of one of Within's sees its end and its
// values, however late it looks, while others are being used.
func TestReleasedContextsStayEnded(t *testing.T) {
	type key struct{}
	var wg sync.WaitGroup
	for i := range 200 {
		parent := context.WithValue(context.Background(), key{}, i)
		c := Within(parent, time.Now(), time.Hour)
		child, cancel := context.WithTimeout(c, time.Hour)
		wg.Go(func() {
			defer cancel()
			<-child.Done()
			runtime.Gosched()
			if c.Err() == nil || child.Err() == nil || child.Value(key{}) != i {
				t.Errorf("context %d: %v, its child %v with value %v", i, c.Err(), child.Err(),
					child.Value(key{}))
			}
		})
		c.Release()
		next := Within(context.Background(), time.Now(), time.Hour)
		if next.Err() != nil || next.Value(key{}) != nil {
			t.Fatalf("a new one has ended (%v), or has values", next.Err())
		}
		next.Release()
	}
	wg.Wait()
}
