package alloctest

import "testing"

var sink []byte

// What others allocate now and then is not seen; what the code allocates every time is.
func TestOnlyWhatIsAlwaysThereCounts(t *testing.T) {
	for name, measure := range map[string]func(float64, int, func()) float64{
		"PerRun": PerRun, "Mean": Mean,
	} {
		calls := 0
		disturbed := func() {
			if calls++; calls < 60 { // the first rounds only, like a goroutine that comes and goes
				for range 10 {
					sink = make([]byte, 100)
				}
			}
		}
		if n := measure(0.5, 20, disturbed); n > 0.5 {
			t.Errorf("%s: %v allocations that are another's", name, n)
		}
		if n := measure(0.5, 20, func() { sink = make([]byte, 100) }); n < 1 || n > 5 {
			t.Errorf("%s: one allocation counted as %v", name, n)
		}
	}
}
