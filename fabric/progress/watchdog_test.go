package progress

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type idler struct {
	left, seen int
	calm       atomic.Bool
}

func (g *idler) Pressing() bool { return !g.calm.Load() }

func (g *idler) Check() bool {
	g.seen++
	g.left--
	return g.left > 0
}

func TestChecksUntilToldNotTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		v := NewWatchdog[*idler]()
		go v.Run(ctx)
		long, short := &idler{left: 5}, &idler{left: 1}
		v.Add(long)
		v.Add(short)
		time.Sleep(20 * Period)
		synctest.Wait()
		if long.seen != 5 || short.seen != 1 {
			t.Fatalf("checked %d and %d times", long.seen, short.seen)
		}
		short.left = 2
		v.Add(short) // it sleeps by now
		time.Sleep(20 * Period)
		synctest.Wait()
		if short.seen != 3 {
			t.Fatalf("checked %d times after it was added again", short.seen)
		}
		cancel()
		synctest.Wait()
	})
}

// TestChecksSeldomWhereNothingPresses: and at once more often when something begins to.
func TestChecksSeldomWhereNothingPresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		v := NewWatchdog[*idler]()
		go v.Run(ctx)
		calm := &idler{left: 1 << 20}
		calm.calm.Store(true)
		v.Add(calm)
		time.Sleep(10*LongPeriod + Period/2)
		synctest.Wait()
		if calm.seen != 10 {
			t.Fatalf("checked %d times in ten long periods", calm.seen)
		}
		pressing := &idler{left: 3}
		v.Add(pressing)
		time.Sleep(3 * Period)
		synctest.Wait()
		if pressing.seen != 3 || calm.seen != 13 {
			t.Fatalf("checked %d and %d times while one pressed", pressing.seen, calm.seen-10)
		}
		time.Sleep(10 * Period) // within a long period
		calm.calm.Store(false)
		v.Hurry()
		time.Sleep(2 * Period)
		synctest.Wait()
		if calm.seen != 15 {
			t.Fatalf("checked %d times when it had begun to press", calm.seen-13)
		}
		cancel()
		synctest.Wait()
	})
}
