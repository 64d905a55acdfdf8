package progress

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-storage/sluice/fabric"
)

// TestPollersYieldNowAndThen: and not each time that they sleep.
func TestPollersYieldNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		q.spin.open(fabric.CQOptions{}, Pace{}, &Spinners{})
		for i, step := range []struct {
			pause  time.Duration
			yields bool
		}{{yieldEvery / 2, false}, {yieldEvery, true}, {yieldEvery / 2, false}, {2 * yieldEvery, true}} {
			time.Sleep(step.pause)
			before := q.yielded
			if q.yield(); (q.yielded != before) != step.yields {
				t.Fatalf("step %d: it yields: %v", i, !step.yields)
			}
		}
	})
}
