package client

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta/store"
)

// TestWritersOfOneSmallFileTakeTurns: clients that write the same small file all the time, and open
// and close it or keep it open, get the lease one after the other. None waits for as long as a
// lease lasts, though all of them answer. So it is where each opening empties the file, and where
// programs of one client do that beside each other.
func TestWritersOfOneSmallFileTakeTurns(t *testing.T) {
	for name, one := range map[string]struct{ clients, programs, rounds, flags int }{
		"overwritten":              {30, 1, 40, os.O_WRONLY},
		"emptied":                  {8, 1, 40, os.O_WRONLY | os.O_TRUNC},
		"emptied by many programs": {4, 3, 20, os.O_WRONLY | os.O_TRUNC},
	} {
		t.Run(name, func(t *testing.T) { takeTurns(t, one.clients, one.programs, one.rounds, one.flags) })
	}
}

func takeTurns(t *testing.T, clients, programs, rounds, flags int) {
	c := newCluster(t, 2, withLongLeases(store.Options{}))
	ctx := context.Background()
	fss := make([]*FS, clients)
	for i := range fss {
		fss[i] = c.client(Options{})
	}
	for k := range rounds {
		touch(t, fss[0], turnsName(k))
	}
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	for i := range clients * programs {
		all.Go(func() {
			for k := range rounds {
				start := time.Now()
				err := overwrite(ctx, fss[i%clients], turnsName(k), flags, i, 1+k%3)
				if err != nil {
					t.Errorf("program %d, round %d: %v", i, k, err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(start))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	highest := took[len(took)-1]
	t.Logf("median %v, highest %v", took[len(took)/2], highest)
	if highest >= longLease/2 {
		t.Errorf("somebody waited for %v, a lease is %v", highest, longLease)
	}
}

// turnsName is the file of a round: the next one is small, when all have written this one.
func turnsName(round int) string { return fmt.Sprintf("/%d", round/10) }

// overwrite opens a file, writes it a few times and closes it.
func overwrite(ctx context.Context, fs *FS, name string, flags, who, times int) error {
	f, err := fs.OpenFile(ctx, name, flags, 0)
	if err != nil {
		return err
	}
	for k := range times {
		if _, err := f.WriteAt(ctx, fmt.Appendf(nil, "%d.%d", who, k), 0); err != nil {
			return err
		}
	}
	return f.Close(ctx)
}
