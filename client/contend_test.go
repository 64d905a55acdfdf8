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
// lease lasts, though all of them answer.
func TestWritersOfOneSmallFileTakeTurns(t *testing.T) {
	const clients, rounds = 30, 40
	const lease = 10 * time.Second
	c := newCluster(t, 2, store.Options{LeaseTime: lease})
	ctx := context.Background()
	fss := make([]*FS, clients)
	for i := range fss {
		fss[i] = c.client(Options{})
	}
	f, err := fss[0].Create(ctx, "/f")
	must(t, err)
	must(t, f.Close(ctx))
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	for i, fs := range fss {
		all.Go(func() {
			for k := range rounds {
				start := time.Now()
				if err := overwrite(ctx, fs, i, 1+k%3); err != nil {
					t.Errorf("client %d, round %d: %v", i, k, err)
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
	if highest >= lease {
		t.Errorf("somebody waited for %v", highest)
	}
}

// overwrite opens the file, writes it a few times and closes it.
func overwrite(ctx context.Context, fs *FS, who, times int) error {
	f, err := fs.OpenFile(ctx, "/f", os.O_WRONLY, 0)
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
