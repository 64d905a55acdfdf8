package systest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPausedProcesses stops each process of a cluster in turn while programs run. Nobody may see a
// wrong byte, and what was synced is there. As long as the pause is shorter than what clients
// promise to wait, no program sees an error either. With SLUICE_SOAK each process is stopped for
// 5, 35 and 70 s; SLUICE_PAUSES names other times, in seconds.
func TestPausedProcesses(t *testing.T) {
	t.Parallel()
	pauses := []time.Duration{3 * time.Second}
	if os.Getenv("SLUICE_SOAK") != "" {
		pauses = []time.Duration{5 * time.Second, 35 * time.Second, 70 * time.Second}
	}
	if v := os.Getenv("SLUICE_PAUSES"); v != "" {
		pauses = nil
		for s := range strings.SplitSeq(v, ",") {
			n, err := strconv.Atoi(s)
			must(t, err)
			pauses = append(pauses, time.Duration(n)*time.Second)
		}
	}
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("seed %d, pauses %v (SLUICE_SEED, SLUICE_PAUSES)", seed, pauses)
	opts := clusterOptions{iods: 2, mount: true}
	c := startCluster(t, opts)
	l := newLoad(t, c, rand.New(rand.NewPCG(seed, 21)))
	for round, d := range pauses {
		for name, pid := range l.processes(t) {
			l.pauseOne(t, round, name, pid, d)
			if t.Failed() {
				t.Fatalf("paused %s for %v, seed %d", name, d, seed)
			}
		}
	}
}

// processes are those of the cluster and the gateway, by name.
func (l *load) processes(t *testing.T) map[string]int {
	st, err := l.c.state()
	must(t, err)
	pids := map[string]int{"nbd": int(l.gate.pid.Load())}
	for _, p := range st.Processes {
		pids[p.Name] = p.PID
	}
	return pids
}

// waitPromised is how long clients wait for a server before a program sees an error.
const waitPromised = 60 * time.Second

func (l *load) pauseOne(t *testing.T, round int, name string, pid int, d time.Duration) {
	t.Helper()
	failed := l.failures()
	begun := l.progress()
	l.start(t)
	time.Sleep(500 * time.Millisecond)
	stopFor(t, pid, d)
	time.Sleep(500 * time.Millisecond)
	l.finish()
	l.c.awaitReady(t, l.c.opts)
	l.verify(t, round, name+" was paused for "+d.String())
	if l.progress() == begun {
		t.Errorf("nothing got done while %s was paused for %v", name, d)
	}
	if d < waitPromised && l.failures() != failed {
		t.Errorf("%d operations failed while %s was paused for %v: %v", l.failures()-failed, name, d,
			l.names.failures)
	}
	t.Logf("%s paused for %v: %d operations", name, d, l.progress()-begun)
}
