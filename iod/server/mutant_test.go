package server

import (
	"testing"

	"github.com/sluice-storage/sluice/internal/mutanttest"
)

// Each mutant of testdata/mutants.txt must be found by the tests that are there for it.
func TestMutantsAreFound(t *testing.T) {
	mutanttest.Hunt{Cases: []mutanttest.Case{
		{Mutant: "trust", Tests: "TestWrongSumsChangeNothing/cached"},
		{Mutant: "trust", Tests: "TestWrongSumsChangeNothing/direct"},
		{Mutant: "forget", Tests: "TestARepeatedWriteIsAppliedOnce"},
		{Mutant: "stale", Tests: "TestModesAreCoherent/back", Tries: 10},
		{Mutant: "unsettled", Tests: "TestModesAreCoherent/back", Tries: 10},
		{Mutant: "swapSums", Tests: "TestModesAreCoherent/back", Tries: 10},
		{Mutant: "noFence", Tests: "TestFencedGenerationIsNotReadFromTheCache"},
		{Mutant: "keepMark", Tests: "TestVerifierTellsOfARestart"},
	}}.Run(t)
}
