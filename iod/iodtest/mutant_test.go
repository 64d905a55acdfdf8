package iodtest

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/internal/mutanttest"
	"github.com/sluice-storage/sluice/unifier"
)

// TestCrowdAtASmallServer has a crowd at a server that has little memory and dies often. With
// SLUICE_CROWDS there are so many that stay longer, one after the other, of seeds that follow each
// other.
func TestCrowdAtASmallServer(t *testing.T) {
	crowds, err := strconv.ParseUint(os.Getenv("SLUICE_CROWDS"), 10, 64)
	brief := err != nil
	if brief {
		crowds = 1
	}
	first := seedOf(t)
	for seed := first; seed < first+crowds; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			co := usualCrowd(seed)
			co.Every = 60
			if brief {
				co.Steps, co.Lives = 30, 1
			}
			fatal(t, run(t, rigOptions{net: simNetwork(seed, sim.Options{MaxDelay: int(seed % 2 * 8)}),
				store: memStore(t), cache: unifier.Config{MemoryBytes: 24 << 20,
					DirtyBytes: 2 << 20, DirtyAge: 30 * time.Millisecond}}, co))
		})
	}
}

// The crowd is worth what it finds: these mutants of client, server and cache within a few seeds,
// because of what it reads, not because something else fails.
func TestMutantsAreFound(t *testing.T) {
	names := []string{
		"ignoreVerifier", "forgetOne", "outOfOrder", "newNumbers", "hideCut", // iod/remote
		"forget", "stale", "unsettled", "keepMark", // iod/server
		"lendUnpinned", "skipSettle", "keepChanged", "evictDirty", "keepSums", "anyOrder", // unifier
	}
	if soaking() {
		names = append(names, "noFence", "dropStamps") // which take half a minute
	}
	h := mutanttest.Hunt{Packages: []string{"../remote", "../server", "../../unifier"}}
	for _, name := range names {
		h.Cases = append(h.Cases, mutanttest.Case{Mutant: name, Tests: "TestCrowdAtASmallServer",
			Env: []string{"SLUICE_SEED=0", "SLUICE_CROWDS=40"}, Says: ErrViolated.Error()})
	}
	h.Run(t)
}
