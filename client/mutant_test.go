package client

import (
	"testing"

	"github.com/sluice-storage/sluice/internal/mutanttest"
)

// Each mutant of testdata/mutants.txt must be found by the tests that are there for it.
func TestMutantsAreFound(t *testing.T) {
	mutanttest.Hunt{Cases: []mutanttest.Case{
		{Mutant: "appendCollides", Tests: "TestAppendsOfClients"},
		{Mutant: "asksFirst", Tests: "TestDeferredDirectoryIsLookedUp"},
		{Mutant: "keepsTenure", Tests: "TestOthersSeeWhatReturned"},
		{Mutant: "lostQuietly", Tests: "TestDeferredLate"},
		{Mutant: "removesShared", Tests: "TestSharedFileIsRemovedAtOnce"},
		{Mutant: "heldBack", Tests: "TestHeldBackUntilAsked"},
		{Mutant: "lostSilently", Tests: "TestLostLock"},
		{Mutant: "staleUnderLock", Tests: "TestLocksOfTwoClients"},
	}}.Run(t)
}
