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
		on("phantomRmdir", "TestEveryRaceIsNoticed"),
		{Mutant: "lostNlink", Tests: "TestOnMemkv/RemoveTree$"},
		{Mutant: "treeForgotten", Tests: "TestPowerCutsWhileATreeIsRemoved", Tries: 10},
		{Mutant: "renameCycle", Tests: "TestOnMemkv/RenameRefusals"},
		{Mutant: "lateMove", Tests: "TestOnMemkv/RemoveTreeMoves"},
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
		{Mutant: "noWalk", Tests: "TestOnMemkv/RemoveTreeRights"},
		{Mutant: "noSecondLook", Tests: "TestCheckFindsAndRepairs/lost_nlink"},
		{Mutant: "formatFirst", Tests: "TestDamagedDumpsAreRefused"},
	}}.Run(t)
}
