package msg

import (
	"testing"

	"github.com/sluice-storage/sluice/internal/mutant"
)

// Each mutant of testdata/mutants.txt must be found by the tests that are there for it.
func TestMutantsAreFound(t *testing.T) {
	on := func(name, tests string) mutant.Case {
		return mutant.Case{Mutant: name, Tests: tests, Tries: 5, Env: []string{"MSG_PATIENCE=2s"}}
	}
	const (
		model  = "TestRandomRequestsAgainstModel/sim-delays"
		cancel = "TestCancellationAtRandomMoments/sim-delays"
	)
	mutant.Hunt{Cases: []mutant.Case{
		on("loseCredit", model),
		on("earlyReply", model),
		on("keepReceive", model),
		on("swapPieces", model),
		on("keepGrants", cancel),
		on("leakOnAbort", cancel),
		on("invertLevels", "TestHigherLevelsGoFirstButNotForEver"),
		on("reuseEarly", "TestEagerSlotsAreShared"),
		on("overrun", "TestUnits/sim-delays"),
	}}.Run(t)
}
