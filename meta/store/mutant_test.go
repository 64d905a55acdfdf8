package store_test

import (
	"testing"

	"github.com/sluice-storage/sluice/internal/mutanttest"
)

// Each mutant of testdata/mutants.txt must be found by the tests that are there for it.
func TestMutantsAreFound(t *testing.T) {
	on := func(name, tests string) mutanttest.Case {
		return mutanttest.Case{Mutant: name, Tests: tests, Tries: 5}
	}
	const states = "TestQuotasAreExactAfterEveryCommit"
	mutanttest.Hunt{Cases: []mutanttest.Case{
		on("quotaDrift", states),
		on("quotaUnbounded", "TestQuotaRaces"),
		on("movedInUncounted", "TestMovedInWhileCounted"),
		on("countNoCharge", states),
		on("movedPastTheWalk", "TestMovedPastTheWalk"),
		on("quotaKeepsPromise", "TestOnMemkv/QuotaOfWriters"),
		on("quotaLeftBehind", "TestOnMemkv/QuotaMoves"),
	}}.Run(t)
}
