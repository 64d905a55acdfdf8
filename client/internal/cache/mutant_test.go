package cache

import (
	"testing"

	"github.com/sluice-storage/sluice/internal/mutanttest"
)

// Each mutant of testdata/mutants.txt must be found by the tests that are there for it.
func TestMutantsAreFound(t *testing.T) {
	model := func(name string) mutanttest.Case {
		return mutanttest.Case{Mutant: name, Tests: "TestModel", Env: []string{"CACHE_SEEDS=4000"}}
	}
	mutanttest.Hunt{
		Control: []string{"CACHE_SEEDS=20"},
		Cases: []mutanttest.Case{
			model("keepRecalled"), model("takeRecalled"), model("noTime"), model("takeBusy"),
			model("answerBusy"), model("keepExact"), model("anyOrder"), model("toldUnknown"),
			model("bornBusy"), model("anyPage"), model("parentNotCounted"),
			model("parentFromBefore"), model("nameFromBefore"),
			{Mutant: "movedUnsure", Tests: "TestMovedAnother"},
			{Mutant: "pageUnleased", Tests: "TestPageWithoutALease"},
		},
	}.Run(t)
}
