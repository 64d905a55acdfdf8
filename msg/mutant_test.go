package msg

import (
	"testing"

	"github.com/sluice-storage/sluice/internal/mutanttest"
)

// Each mutant of testdata/mutants.txt must be found by the tests that are there for it.
func TestMutantsAreFound(t *testing.T) {
	on := func(name, tests string) mutanttest.Case {
		return mutanttest.Case{Mutant: name, Tests: tests, Tries: 5, Env: []string{"MSG_PATIENCE=2s"}}
	}
	const (
		model  = "TestRandomRequestsAgainstModel/sim-delays"
		cancel = "TestCancellationAtRandomMoments/sim-delays"
	)
	mutanttest.Hunt{Cases: []mutanttest.Case{
		on("loseCredit", model),
		on("earlyReply", model),
		on("keepReceive", model),
		on("swapPieces", model),
		on("keepGrants", cancel),
		on("leakOnAbort", cancel),
		on("invertLevels", "TestHigherLevelsGoFirstButNotForEver"),
		on("reuseEarly", "TestEagerSlotsAreShared"),
	}}.Run(t)
}
