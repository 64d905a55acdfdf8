// Package alloctest counts, for tests, what a piece of code allocates. The runtime counts for the
// whole process, so that a goroutine in the background, or the runtime itself, adds to what is
// measured, and the more so the longer a busy host keeps the measured code from running. What the
// code itself allocates is there every time: so each function measures again, up to Tries times,
// while it sees more than the limit, and returns the least.
//
// It fails no test: the caller does.
package alloctest

import (
	"runtime"
	"testing"
)

// Tries is how often something is measured at most.
const Tries = 10

// PerRun is testing.AllocsPerRun: it runs fn on one processor and rounds the mean down. No parallel
// tests.
func PerRun(limit float64, runs int, fn func()) float64 {
	return least(limit, func() float64 { return testing.AllocsPerRun(runs, fn) })
}

// Mean neither rounds nor stops other processors: for code that is spread over goroutines.
func Mean(limit float64, runs int, fn func()) float64 {
	return least(limit, func() float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			fn()
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / float64(runs)
	})
}

func least(limit float64, measure func() float64) float64 {
	n := measure()
	for tries := 1; tries < Tries && n > limit; tries++ {
		n = min(n, measure())
	}
	return n
}
