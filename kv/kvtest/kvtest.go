// Package kvtest is the definition of what an engine of package kv must do, as tests: what
// commits check and change, what snapshots show, what survives a crash, what races must not
// break. Every engine passes all of it; a case that an engine cannot pass is excluded by name,
// with the reason.
//
// It does not test speed, nor how an engine behaves on a failing disk: that is the engine's own.
//
// Read kvtest.go first, then basic.go and race.go for what cases look like.
package kvtest

import (
	"testing"

	"github.com/sluice-storage/sluice/kv"
)

// Config tells the suite how to make stores. Stores are closed by the suite.
type Config struct {
	// Open returns a new, empty store.
	Open func(tb testing.TB) kv.Store

	// Reopen closes s and opens what it held again.
	Reopen func(tb testing.TB, s kv.Store) kv.Store

	// Crash ends s at this moment as a power cut would, with commits perhaps running, and opens
	// what was durable. What was not synced may be lost or kept, as a prefix of the commit order.
	Crash func(tb testing.TB, s kv.Store) kv.Store

	// Exclude lists cases that the engine does not pass, with the reason. Default: none.
	Exclude map[string]string
}

// Case is one test of the suite. It works on any testing.TB, so that the suite can be tried on
// engines that are broken on purpose.
type Case struct {
	Name string
	Run  func(tb testing.TB, cfg Config)
}

// Run runs the whole suite as subtests.
func Run(t *testing.T, cfg Config) {
	names := map[string]bool{}
	for _, c := range Cases() {
		names[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			if reason := cfg.Exclude[c.Name]; reason != "" {
				t.Skipf("excluded: %s", reason)
			}
			c.Run(t, cfg)
		})
	}
	for name := range cfg.Exclude {
		if !names[name] {
			t.Errorf("case %q is excluded but does not exist", name)
		}
	}
}

// Cases returns the suite, the simple things first.
func Cases() []Case {
	var all []Case
	for _, group := range [][]Case{
		basicCases(), checkCases(), seenCases(), rangeCases(), snapshotCases(), limitCases(),
		replayCases(), raceCases(), crashCases(), modelCases(),
	} {
		all = append(all, group...)
	}
	return all
}
