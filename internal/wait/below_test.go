package wait

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

// TestBelowEnds says with what a context ends that is below another one, and as what.
func TestBelowEnds(t *testing.T) {
	for name, row := range map[string]struct {
		limit time.Duration
		end   func(above, c *Context)
		want  error
	}{
		"with the one above": {time.Hour, func(a, _ *Context) { a.End(context.Canceled) },
			context.Canceled},
		"when the one above ran out": {time.Hour, func(a, _ *Context) {
			a.End(context.DeadlineExceeded)
		}, context.DeadlineExceeded},
		"by itself": {time.Hour, func(_, c *Context) { c.End(context.Canceled) }, context.Canceled},
		"in time":   {time.Millisecond, func(_, _ *Context) {}, context.DeadlineExceeded},
	} {
		for _, listening := range []bool{false, true} {
			above := (&Context{}).Renew(0)
			c := Below(above, time.Now(), row.limit)
			ended := make(chan struct{})
			if listening {
				done := c.Done()
				go func() { <-done; close(ended) }()
			} else {
				close(ended)
			}
			row.end(above, c)
			<-ended
			for end := time.Now().Add(time.Minute); c.Err() == nil; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: it does not end", name)
				}
			}
			if c.Err() != row.want {
				t.Errorf("%s, listening %v: %v, want %v", name, listening, c.Err(), row.want)
			}
			c.Release()
			above.End(context.Canceled)
		}
	}
	above := (&Context{}).Renew(0)
	above.End(context.Canceled)
	c := Below(above, time.Now(), time.Hour)
	<-c.Done() // who comes too late is told, too
	c.Release()
}

// TestBelowEndsOnlyItsOwn: contexts above end while those below are released and used again for
// others, which must not be ended by it.
func TestBelowEndsOnlyItsOwn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 3000 {
		first, second := (&Context{}).Renew(0), (&Context{}).Renew(0)
		pauses := [3]int{rng.IntN(200), rng.IntN(200), rng.IntN(200)}
		var wg sync.WaitGroup
		wg.Go(func() {
			spin(pauses[0])
			first.End(context.Canceled)
		})
		c := Below(first, time.Now(), time.Hour)
		c.Lend()
		spin(pauses[1])
		c.Return()
		c.Release()
		next := Below(second, time.Now(), time.Hour)
		done := next.Lend()
		spin(pauses[2])
		wg.Wait()
		select {
		case <-done:
			t.Fatal("told of an end that was another's")
		default:
		}
		if err := next.Err(); err != nil {
			t.Fatalf("ended by another's end: %v", err)
		}
		second.End(context.Canceled)
		<-done
		next.Return()
		next.Release()
	}
}

// TestBelowAllocatesNothing: neither does it start a goroutine.
func TestBelowAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has pools forget what they are given")
	}
	above := (&Context{}).Renew(0)
	use := func() {
		c := Below(above, time.Now(), time.Hour)
		c.Lend()
		c.Return()
		c.Release()
	}
	use()
	if n := alloctest.Mean(0, 200, use); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if len(above.below) != 0 {
		t.Errorf("%d are remembered", len(above.below))
	}
}

func spin(n int) {
	for range n {
		_ = time.Now()
	}
}
