package systest

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/iod/iodtest"
)

// TestIodKilledUnderLoad has clients make random requests while the I/O server is killed again and
// again: what is durable stays, what was not synced is sent again by those who live, once. With
// SLUICE_SOAK it goes on for minutes.
func TestIodKilledUnderLoad(t *testing.T) {
	ways := map[string][]string{"back": {"--memory", "128M", "--write-back=true"}}
	if os.Getenv("SLUICE_SOAK") != "" {
		ways["through"] = []string{"--memory", "128M", "--write-back=false"}
	}
	for name, flags := range ways {
		t.Run(name, func(t *testing.T) {
			seed, err := strconv.ParseUint(os.Getenv("SLUICE_SEED"), 10, 64)
			if err != nil {
				seed = rand.Uint64()
			}
			s := startIod(t, flags...)
			steps, lives := 150, 1
			if os.Getenv("SLUICE_SOAK") != "" {
				steps, lives = 600, 20
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			c := iodtest.NewCrowd(ctx, s.site(), iodtest.CrowdOptions{
				Seed: seed, Clients: 4, Workers: 3, Steps: steps, Lives: lives,
				Every: 600,
				Files: []*iodtest.File{
					{Number: 1 << 40, Cells: 64, CellBytes: 4096},
					{Number: 1<<40 + 1, Cells: 40, CellBytes: 512},
					{Number: 1<<40 + 2, Cells: 400, CellBytes: 4096},
				},
			})
			err = c.Run()
			t.Logf("SLUICE_SEED=%d: %d requests, %d kills", seed, c.Requests(), c.Crashes())
			must(t, err)
			if c.Crashes() == 0 {
				t.Error("the server was never killed")
			}
		})
	}
}
