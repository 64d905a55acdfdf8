package remote

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe"

	"github.com/sluice-storage/sluice/internal/alloctest"
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
	before := r.Stats()
	least := alloctest.Mean(limit*rounds, 1, run) / rounds
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
