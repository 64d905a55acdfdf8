package systest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// modelSteps is how many operations the model does; SLUICE_MODEL_STEPS says otherwise.
func modelSteps(n, long int) int {
	if os.Getenv("SLUICE_SOAK") != "" {
		n = long
	}
	return envInt("SLUICE_MODEL_STEPS", n)
}

// TestRandomOperationsOnTwoMounts does random operations in turns on two mounts, and each of them
// on a local ext4 as well, which is the model. Every result must be the same: error, bytes,
// attributes, listings; and both mounts must agree on what a model cannot know, as inode numbers
// and times. A sequence that fails is made short before it is reported. SLUICE_SEED and
// SLUICE_MODEL_STEPS repeat a run.
func TestRandomOperationsOnTwoMounts(t *testing.T) {
	t.Parallel()
	r := newModelRig(t, clusterOptions{iods: 3, mount: true})
	r.check(t, modelSteps(2500, 60000), 1)
}

// TestRandomProgramsOnTwoMounts is several of these at the same time. Each has names of its own, so
// that it knows what must be there, but all share directories: leases on them are recalled all the
// time, by the other mount and by other programs.
func TestRandomProgramsOnTwoMounts(t *testing.T) {
	t.Parallel()
	r := newModelRig(t, clusterOptions{iods: 3, mount: true})
	r.check(t, modelSteps(700, 15000), 6)
}

// TestRandomProgramsAndKills is the same over tcp while the metadata service is killed: everything
// waits, and nothing is lost or done twice. (I/O servers are killed in other tests: where data is
// not synced, a mount that has not written it may read what was there before, until the one that
// has sends it again.)
func TestRandomProgramsAndKills(t *testing.T) {
	t.Parallel()
	r := newModelRig(t, clusterOptions{iods: 3, mount: true, providers: "tcp"})
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		done <- r.c.killInTurn(stop, 1500*time.Millisecond, "meta")
	}()
	r.check(t, modelSteps(300, 5000), 4)
	close(stop)
	t.Logf("%d kills", <-done)
}

// modelRig is a cluster with two mounts, and a local file system.
type modelRig struct {
	c     *cluster
	roots [3]string // the mounts, and the model
	mu    sync.Mutex
	runs  int
}

func newModelRig(t *testing.T, o clusterOptions) *modelRig {
	t.Helper()
	disk := newDisk(t, 512<<20)
	c := startCluster(t, o)
	return &modelRig{c: c, roots: [3]string{c.mnt, c.startMount(t), disk.dir}}
}

// check runs programs at once, each with so many operations. The first that fails alone, too, is
// made shorter; others are reported with the end of what they did.
func (r *modelRig) check(t *testing.T, steps, programs int) {
	t.Helper()
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("seed %d, %d operations of each of %d programs (SLUICE_SEED, SLUICE_MODEL_STEPS)", seed,
		steps, programs)
	shared := r.fresh(t)
	var wg sync.WaitGroup
	for p := range programs {
		ops := drawOps(rand.New(rand.NewPCG(seed, uint64(p))), steps)
		x := newTwins(r.roots, shared, string(rune('A'+p)))
		must(t, x.prepare())
		wg.Go(func() {
			if err := x.run(ops); err != nil {
				t.Errorf("seed %d, program %d of %d:\n%v", seed, p, programs, err)
				r.shorten(t, ops[:x.at+1])
			}
		})
	}
	wg.Wait()
}

// fresh makes directories for a run: two on the mounts, and two for each program on the model.
func (r *modelRig) fresh(t *testing.T) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs++
	name := fmt.Sprintf("run%d", r.runs)
	for _, dir := range sharedDirs {
		must(t, os.MkdirAll(filepath.Join(r.roots[0], name, dir), 0o755))
	}
	return name
}

// shortenMax is how long a shorter sequence is looked for.
const shortenMax = time.Minute

// shorten repeats a sequence that has failed, alone, with ever fewer operations.
func (r *modelRig) shorten(t *testing.T, ops []op) {
	var idle map[int]bool
	var err error
	end := time.Now().Add(shortenMax)
	fails := func(few []op) bool { // few becomes ops if it does, up to where it does
		x := newTwins(r.roots, r.fresh(t), "A")
		if time.Now().After(end) || x.prepare() != nil {
			return false
		}
		if e := x.run(few); e != nil {
			ops, err, idle = few[:x.at+1], e, x.idle
			return true
		}
		return false
	}
	if !fails(ops) {
		t.Log("alone, and done again, it does not fail")
		return
	}
	var useful []op
	for i, o := range ops {
		if !idle[i] || i == len(ops)-1 {
			useful = append(useful, o)
		}
	}
	fails(useful)
	for part := len(ops) / 2; part > 0; part /= 2 {
		for at := 0; at+part <= len(ops); {
			if !fails(append(append([]op{}, ops[:at]...), ops[at+part:]...)) {
				at += part
			}
		}
	}
	lines := make([]string, len(ops))
	for i, o := range ops {
		lines[i] = o.String()
	}
	t.Logf("these %d operations fail as well:\n%s\n%v", len(ops), strings.Join(lines, "\n"), err)
}
