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
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/peer"
)

const (
	crowd        = 100 // clients, each with a session and connections of its own
	crowdMemory  = "512M"
	crowdBound   = 512 << 20
	crowdRuntime = 60 << 20 // what a server may use beyond that: the program and its runtime

	// What a server maps of each client that is on its host, and what is the client's: the rings of
	// the connection, and buffers.
	crowdRings   = 1 << 20
	crowdBuffers = 4 << 20
)

// TestMemoryBoundWithACrowd has a hundred clients read and write at once and compares what the
// servers use with the bound that was configured: their own memory, and that of the clients which
// they map.
func TestMemoryBoundWithACrowd(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 4, extra: []string{"--memory", crowdMemory}})
	arenas := shm.NewArenas()
	near, err := shm.Open(shm.Options{Arenas: arenas})
	must(t, err)
	defer near.Close()
	far, err := tcp.Open(tcp.Options{Secret: &tcp.Secret{}})
	must(t, err)
	defer far.Close()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var working, closing sync.WaitGroup
	working.Add(crowd)
	leave := make(chan struct{})
	for i := range crowd {
		closing.Go(func() {
			fs, err := client.Dial(t.Context(), c.url, client.Options{Buffers: crowdBuffers,
				Providers: &peer.Providers{Domains: []fabric.Domain{near, far}, Memory: arenas}})
			if err == nil {
				err = member(t.Context(), fs, i, rand.New(rand.NewPCG(seed, uint64(i))))
				defer fs.Close()
			}
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			working.Done()
			<-leave
		})
	}
	working.Wait()
	st := c.answered(t)
	// On a busy machine some take too long by shared memory, and go by tcp until they try again.
	c.await(t, "most clients go by shm", func() bool {
		st = c.answered(t)
		return st.count("connections_shm") >= 4*crowd*9/10
	})
	own := int64(crowdBound + crowdRuntime)
	all := own + crowd*(crowdRings+crowdBuffers)
	for _, p := range st.Processes {
		if strings.HasPrefix(p.Name, "iod") {
			wantOwnMemory(t, p.Name, p.PID, own)
			wantMemory(t, p.Name, p.PID, "VmHWM", all)
			if residentOf(t, p.PID, "memfd:sluice-arena") == 0 {
				t.Errorf("%s maps nothing of its clients", p.Name)
			}
		}
	}
	close(leave)
	closing.Wait()
	c.wantNothingMapped(t)
}

// wantMemory compares a line of a process's status with a bound.
func wantMemory(t *testing.T, name string, pid int, field string, limit int64) {
	t.Helper()
	n := memoryOf(t, pid, field)
	t.Logf("%s: %s %d MiB, bound %d MiB", name, field, n>>20, limit>>20)
	if n > limit {
		t.Errorf("%s: %s is %d MiB, its bound is %d MiB", name, field, n>>20, limit>>20)
	}
}

// wantOwnMemory compares what an I/O server has of its own with its bound: its cache is shared
// memory, which it lends.
func wantOwnMemory(t *testing.T, name string, pid int, limit int64) {
	t.Helper()
	anon, lent := memoryOf(t, pid, "RssAnon"), residentOf(t, pid, "memfd:sluice-lent")
	t.Logf("%s: %d MiB anonymous, %d MiB lent, bound %d MiB", name, anon>>20, lent>>20, limit>>20)
	if anon+lent > limit {
		t.Errorf("%s has %d MiB of its own, its bound is %d MiB", name, (anon+lent)>>20, limit>>20)
	}
	if lent == 0 {
		t.Errorf("%s lends nothing", name)
	}
}

// residentOf is how much of its mappings of a file a process has in memory.
func residentOf(t *testing.T, pid int, file string) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	must(t, err)
	of := false
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kib); n == 1 {
			if of {
				bytes += kib << 10
			}
		} else if f := strings.Fields(line); !strings.HasSuffix(f[0], ":") { // a mapping's first line
			of = strings.Contains(line, file)
		}
	}
	return bytes
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

// memoryOf is a line of a process's status, in bytes.
func memoryOf(t *testing.T, pid int, field string) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			var kb int64
			_, err := fmt.Sscanf(rest, "%d kB", &kb)
			must(t, err)
			return kb << 10
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return 0
}
