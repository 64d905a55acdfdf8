package remote

import (
	"runtime"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe"
)

// TestNothingIsAllocatedForWaiting: writes that wait until the oldest kept ones have been synced,
// and these syncs, allocate nothing either.
func TestNothingIsAllocatedForWaiting(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const rounds, limit = 400, 0.1
	r := newCalm(t, 64<<10, Options{KeepMax: time.Hour, RetainBytes: 300 << 10})
	run := func() {
		for range rounds {
			must(t, r.write(stripe.Volatile))
		}
	}
	run()
	before, least := r.Stats(), 1e9
	for tries := 0; tries < 10 && least > limit; tries++ { // the runtime allocates, too
		var m [2]runtime.MemStats
		runtime.ReadMemStats(&m[0])
		run()
		runtime.ReadMemStats(&m[1])
		least = min(least, float64(m[1].Mallocs-m[0].Mallocs)/rounds)
	}
	after := r.Stats()
	t.Logf("%.3f allocations a write, %d waits, %d syncs", least, after.Waits-before.Waits,
		after.Forced-before.Forced)
	if least > limit {
		t.Errorf("%.2f allocations a write", least)
	}
	if after.Waits == 0 || after.Forced-before.Forced < rounds/10 {
		t.Error("nobody waits for syncs")
	}
}
