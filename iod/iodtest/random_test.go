package iodtest

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/logstore"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
)

// seedOf is SLUICE_SEED, or a new one.
func seedOf(t testing.TB) uint64 {
	seed, err := strconv.ParseUint(os.Getenv("SLUICE_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("SLUICE_SEED=%d", seed)
	return seed
}

func memStore(t testing.TB) stripe.Engine {
	s, err := memstore.New(memstore.Options{MaxBytes: 256 << 20})
	fatal(t, err)
	return s
}

// logStore is a store of two members in files.
func logStore(t testing.TB) stripe.Engine {
	s, err := logstore.OpenPaths(logstore.PathOptions{
		Paths: []string{t.TempDir(), t.TempDir()}, Make: true, Bytes: 256 << 20, ServerID: serverID,
		LogBytes: 8 << 20, PendingBytes: 4 << 20, IndexBytes: 8 << 20,
	})
	fatal(t, err)
	return s
}

// usual are files of different cells. No cell crosses a border of 4096 bytes, the smallest unit of
// a cache and of a store: nobody promises that a write of more is seen as a whole.
func usual() []*File {
	return []*File{
		{Number: 1, Cells: 150, CellBytes: 256}, {Number: 2, Cells: 64, CellBytes: 4096},
		{Number: 3, Cells: 400, CellBytes: 4096}, {Number: 4, Cells: 200, CellBytes: 512},
	}
}

func usualCrowd(seed uint64) CrowdOptions {
	return CrowdOptions{Seed: seed, Clients: 4, Workers: 3, Steps: 300, Lives: 2,
		Every: 120, Files: usual()}
}

// run has a crowd work on a rig and says how much it did.
func run(t testing.TB, ro rigOptions, co CrowdOptions) error {
	ctx, cancel := context.WithTimeout(t.Context(), co.For+5*time.Minute)
	defer cancel()
	began := time.Now()
	c := NewCrowd(ctx, newRig(t, ro).site(), co)
	err := c.Run()
	t.Logf("seed %d: %d requests, %d crashes, %v", co.Seed, c.Requests(), c.Crashes(),
		time.Since(began).Round(time.Millisecond))
	return err
}

// caches are write-through, write-back, and a small one that is always short of memory.
func caches() map[string]unifier.Config {
	return map[string]unifier.Config{
		"through": {MemoryBytes: 48 << 20},
		"back":    {MemoryBytes: 48 << 20, DirtyBytes: 8 << 20, DirtyAge: 20 * time.Millisecond},
		"short":   {MemoryBytes: 24 << 20, DirtyBytes: 512 << 10, DirtyAge: 200 * time.Millisecond},
	}
}

// TestRandomRequests has a crowd at every kind of server. With SLUICE_SOAK it goes on for minutes.
func TestRandomRequests(t *testing.T) {
	seed := seedOf(t)
	for name, cache := range caches() {
		for _, net := range []network{
			simNetwork(seed, sim.Options{}),
			simNetwork(seed, sim.Options{MaxDelay: 20}),
			simNetwork(seed, sim.Options{MaxDelay: 4, BreakOneIn: 3000}),
			tcpNetwork(), shmNetwork(t),
		} {
			t.Run(name+"/"+net.name, func(t *testing.T) {
				store := memStore(t)
				if net.name == "tcp" {
					store = logStore(t)
				}
				co := usualCrowd(seed)
				switch {
				case soaking():
					co.Lives, co.For = 1000, 3*time.Minute
				case testing.Short():
					co.Steps, co.Lives, co.Every = 15, 1, 40
				default:
					co.Steps, co.Lives = 80, 1
				}
				// On a simulated network the seed decides when the server writes back, on a real one
				// its clock.
				still := strings.HasPrefix(net.name, "sim")
				fatal(t, run(t, rigOptions{net: net, store: store, cache: cache, still: still}, co))
			})
		}
	}
}

// soaking tells whether tests are to take their time.
func soaking() bool { return os.Getenv("SLUICE_SOAK") != "" }
