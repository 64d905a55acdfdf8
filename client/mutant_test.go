package client

import (
	"testing"

	"github.com/sluice-storage/sluice/internal/mutanttest"
)

// Each mutant of testdata/mutants.txt must be found by the tests that are there for it.
func TestMutantsAreFound(t *testing.T) {
	mutanttest.Hunt{Cases: []mutanttest.Case{
		{Mutant: "appendCollides", Tests: "TestAppendsOfClients"},
		{Mutant: "lostSilently", Tests: "TestLostLock"},
		{Mutant: "staleUnderLock", Tests: "TestLocksOfTwoClients"},
	}}.Run(t)
}
