package store

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
		on("leaseNotRecalled", "TestOnMemkv/LeasesAreRecalled"),
		on("negativeNameKept", "TestOnMemkv/LeasesAreRecalled"),
		on("replayTwice", "TestOnMemkv/Replay"),
		on("orphanKept", "TestOnMemkv/UnlinkedButOpen"),
		on("openDying", "TestEveryRaceIsNoticed"),
		on("noGrace", "TestOnMemkv/LeasesAfterRestart"),
		on("reusedInode", "TestOnMemkv/Layout"),
		on("sizeLost", "TestOnMemkv/Commit"),
		on("smallLost", "TestOnMemkv/FencedWriter"),
		on("noFence", "TestOnMemkv/FencedWriter"),
	}}.Run(t)
}
