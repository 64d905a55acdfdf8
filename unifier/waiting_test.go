package unifier

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// lazy is a backing that takes a moment, and allocates nothing for that.
type lazy struct{ still }

func (lazy) ReadSums(context.Context, Key, [][]byte, int64, []uint32) error {
	time.Sleep(20 * time.Microsecond)
	return nil
}

func (lazy) WriteSums(context.Context, Key, [][]byte, int64, []uint32, []wire.Stamp,
	stripe.Durability) error {
	time.Sleep(20 * time.Microsecond)
	return nil
}

// TestNothingIsAllocatedForWaiting: those who wait for memory, for a share of it, for each other's
// range locks, for fills of others or for pending writes allocate as little as those who need not.
func TestNothingIsAllocatedForWaiting(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const callers, each, limit = 6, 60, 0.1
	small := Config{MemoryBytes: 4 << 20, ReadaheadBytes: -1}
	back := small
	back.DirtyBytes, back.DirtyAge = 1<<20, time.Hour
	for name, row := range map[string]struct {
		cfg Config
		fn  func(r *rig, caller int64)
	}{
		"range locks": {small, func(r *rig, caller int64) { r.publish(caller*1000, 64<<10) }},
		"fills": {small, func(r *rig, caller int64) {
			r.lend(0, 128<<10, Hint{Policy: None})
		}},
		"memory": {small, func(r *rig, caller int64) { r.lend(caller<<20, 900<<10, Hint{}) }},
		"shares": {small, func(r *rig, caller int64) {
			room, err := r.Take(r.ctx, int(r.TakeShare())*2/3)
			r.ok(err)
			time.Sleep(10 * time.Microsecond)
			room.Return()
		}},
		"pending": {back, func(r *rig, caller int64) {
			r.publish(caller<<20, 200<<10)
			if caller == 0 {
				r.ok(r.Settle(r.ctx, Key{}, 0, 0))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newOn(t, row.cfg, lazy{})
			begin := make([]chan struct{}, callers)
			var over sync.WaitGroup
			for caller := range begin {
				begin[caller] = make(chan struct{})
				go func() {
					for range begin[caller] {
						for range each {
							row.fn(r, int64(caller))
						}
						over.Done()
					}
				}()
			}
			run := func() {
				over.Add(callers)
				for _, ch := range begin {
					ch <- struct{}{}
				}
				over.Wait()
			}
			for range 3 {
				run()
			}
			least := alloctest.Mean(limit*callers*each, 1, run) / (callers * each)
			for _, ch := range begin {
				close(ch)
			}
			t.Logf("%.3f allocations a request", least)
			if least > limit {
				t.Errorf("%.2f allocations a request", least)
			}
		})
	}
}

// publish writes without a number.
func (r *rig) publish(off, n int64) {
	d, err := r.Draft(r.ctx, alpha, seg.Contig(off, n), Hint{})
	r.ok(err)
	_, err = d.Publish(r.ctx, wire.Stamp{}, stripe.Volatile)
	r.ok(err)
}
