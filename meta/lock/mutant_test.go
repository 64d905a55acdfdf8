package lock

import (
	"testing"

	"github.com/sluice-storage/sluice/internal/mutanttest"
)

// Each mutant of testdata/mutants.txt must be found by the tests that are there for it.
func TestMutantsAreFound(t *testing.T) {
	on := func(name, tests string) mutanttest.Case {
		return mutanttest.Case{Mutant: name, Tests: tests}
	}
	mutanttest.Hunt{Cases: []mutanttest.Case{
		on("keptByTheDead", "TestSessionsEnd"),
		on("doneTwice", "TestRepetition"),
		on("overtake", "TestModel"),
		on("unfairWake", "TestModel"),
		on("lostWake", "TestModel"),
		on("keepRest", "TestModel"),
		on("noDeadlock", "TestDeadlockAcrossFiles"),
		on("lateClaim", "TestClaims"),
		on("noGrace", "TestClaims"),
	}}.Run(t)
}
