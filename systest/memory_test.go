package systest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/fabric/tcp"
)

const (
	crowd        = 100 // clients, each with a session and connections of its own
	crowdCache   = 64 << 20
	crowdRuntime = 60 << 20 // what a server may use beside its cache: code, stacks, heap, tables

	// Each connection keeps receives for all of its credits and as much again for replies.
	crowdPerConn = 1 << 20
)

// TestMemoryBoundWithACrowd has a hundred clients read and write at once, more than the servers'
// caches hold, and compares the servers' high-water marks with the bound that was configured.
func TestMemoryBoundWithACrowd(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 4, extra: []string{"--cache", "64M"}})
	domain, err := tcp.Open(tcp.Options{})
	must(t, err)
	defer domain.Close()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() {
			fs, err := client.Dial(t.Context(), c.url, client.Options{Domain: domain})
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			defer fs.Close()
			if err := member(t.Context(), fs, i, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	st, err := c.state()
	must(t, err)
	limit := int64(crowdCache + crowdRuntime + crowd*crowdPerConn)
	for _, p := range st.Processes {
		if strings.HasPrefix(p.Name, "iod") {
			high := highWater(t, p.PID)
			t.Logf("%s: %d MiB at most, bound %d MiB", p.Name, high>>20, limit>>20)
			if high > limit {
				t.Errorf("%s used %d MiB, its bound is %d MiB", p.Name, high>>20, limit>>20)
			}
		}
	}
}

// member writes a striped file of its own, reads it back in random pieces and compares.
func member(ctx context.Context, fs *client.FS, i int, rng *rand.Rand) error {
	const size = 6 << 20
	data := bytes.Repeat(record(uint64(i)+1, i, 64<<10), size/(64<<10))
	f, err := fs.OpenFile(ctx, fmt.Sprintf("/crowd-%d", i), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close(ctx)
	for off := int64(0); off < size; off += 1 << 20 {
		if _, err := f.WriteAt(ctx, data[off:off+1<<20], off); err != nil {
			return err
		}
	}
	p := make([]byte, 1<<20)
	for range 12 {
		n := 1 + rng.Int64N(1<<20)
		off := rng.Int64N(size - n)
		if _, err := f.ReadAt(ctx, p[:n], off); err != nil {
			return err
		}
		if !bytes.Equal(p[:n], data[off:off+n]) {
			return fmt.Errorf("bytes differ at %d", off)
		}
	}
	return nil
}

// highWater is a process's VmHWM in bytes.
func highWater(t *testing.T, pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kb int64
			_, err := fmt.Sscanf(rest, "%d kB", &kb)
			must(t, err)
			return kb << 10
		}
	}
	t.Fatalf("process %d has no VmHWM", pid)
	return 0
}
