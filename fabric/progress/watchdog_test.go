package progress

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

type idler struct{ left, seen int }

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
