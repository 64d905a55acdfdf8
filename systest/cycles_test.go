package systest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDiskFillsAndEmpties fills the disk below a cluster from outside and empties it again, in
// cycles, while programs run. They see ENOSPC and nothing else, what was synced is there, and when
// there is room again everything goes on by itself. With SLUICE_SOAK for ten minutes; SLUICE_CYCLES
// names another number of cycles.
func TestDiskFillsAndEmpties(t *testing.T) {
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	cycles, until := envInt("SLUICE_CYCLES", 2), time.Time{}
	if os.Getenv("SLUICE_SOAK") != "" {
		cycles, until = 1<<30, time.Now().Add(10*time.Minute)
	}
	t.Logf("seed %d, %d cycles (SLUICE_SEED, SLUICE_CYCLES)", seed, cycles)
	rng := rand.New(rand.NewPCG(seed, 41))
	d := newDisk(t, 600<<20)
	opts := clusterOptions{iods: 2, mount: true, dir: filepath.Join(d.dir, "c")}
	c := startCluster(t, opts)
	l := newLoad(t, c, rng)
	l.names.syncs = true
	full := 0
	for cycle := 0; cycle < cycles && (until.IsZero() || time.Now().Before(until)); cycle++ {
		before := l.failures()
		l.start(t)
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		d.fill(int64(rng.IntN(3)) * 4 << 20)
		time.Sleep(time.Duration(500+rng.IntN(2000)) * time.Millisecond)
		// On a busy machine it takes longer until somebody meets the end.
		for end := time.Now().Add(readyLimit); full == 0 && l.failures() == before &&
			time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
		}
		if l.failures() > before {
			full++
		}
		d.empty()
		l.awaitProgress(t)
		l.finish()
		c.awaitReady(t, opts)
		l.verify(t, cycle, "the disk was full")
		for why, n := range l.names.failures {
			if why != "no space left on device" {
				t.Errorf("%d operations failed: %s", n, why)
			}
		}
		if t.Failed() {
			t.Fatalf("cycle %d, seed %d", cycle, seed)
		}
	}
	t.Logf("%d times something failed for want of space; %d operations done", full, l.progress())
	if full == 0 {
		t.Error("the disk was never full for anybody")
	}
}

// awaitProgress returns when names and blocks get written again.
func (l *load) awaitProgress(t *testing.T) {
	t.Helper()
	names, flushed := l.names.done.Load(), l.block.flushed.Load()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if l.names.done.Load() > names+5 && l.block.flushed.Load() > flushed {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("a minute after there is room again: %d operations with names, %d blocks",
				l.names.done.Load()-names, l.block.flushed.Load()-flushed)
			return
		}
	}
}
