package silence

import (
	"testing"
	"time"
)

// TestVerdicts: a peer is asked once, and stuck when it has had the time to answer, however late
// it was looked at.
func TestVerdicts(t *testing.T) {
	const first, second = 10 * time.Second, 5 * time.Second
	start := time.Now()
	var w Watch
	for i, step := range []struct {
		after time.Duration
		heard uint64
		want  Verdict
	}{
		{0, 1, Fine},
		{10 * time.Second, 1, Fine},
		{11 * time.Second, 1, Ask},
		{15 * time.Second, 1, Fine},
		{16 * time.Second, 2, Fine}, // it has answered
		{300 * time.Second, 2, Ask}, // nobody has looked for long: that is not the peer's fault
		{304 * time.Second, 2, Fine},
		{306 * time.Second, 2, Stuck},
	} {
		if got, _ := w.Check(start.Add(step.after), step.heard, first, second); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
