package systest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
)

// blockVictim is a kind of export and who of its servers is killed.
type blockVictim struct {
	name   string
	export exportKind
	iods   int  // so many I/O servers are killed
	server bool // the block server is
	kept   bool // what was acknowledged survives: the kernel has it, or a gateway sends it again
	gone   bool // what was not durable dies with them: no later flush covers it
}

func blockVictims() []blockVictim {
	// A gateway that takes over waits for the leases of the one that was killed.
	volume := exportKind{export: "volume=disk", volume: true, up: []string{"--lease-time", "1s"}}
	return []blockVictim{
		{name: "file server", export: exportKind{export: "file=$1", files: 1}, server: true,
			kept: true},
		{name: "direct", export: exportKind{export: "file=$1,mode=direct", files: 1}, server: true,
			kept: true},
		{name: "cached", export: exportKind{export: "file=$1,mode=cached", files: 1}, server: true,
			gone: true},
		{name: "cached writes", export: exportKind{export: "file=$1,mode=cached-writes", files: 1},
			server: true, gone: true},
		{name: "members", server: true, gone: true, export: exportKind{files: 4,
			export: "members=$1:$2:$3:$4,unit=64K,mode=cached"}},
		{name: "gateway", export: volume, server: true},
		{name: "io server", export: volume, iods: 1, kept: true},
		{name: "gateway and io servers", export: volume, server: true, iods: 4,
			gone: true},
	}
}

// TestKillBlockServers kills servers of block devices by SIGKILL while a client with several
// connections writes, with flushes and FUA in the mix, and checks after every round that all that
// these covered is there. SLUICE_KILL_ROUNDS and SLUICE_SEED set rounds and seed.
func TestKillBlockServers(t *testing.T) {
	t.Parallel()
	for _, v := range blockVictims() {
		t.Run(v.name, func(t *testing.T) { v.rounds(t, envInt("SLUICE_KILL_ROUNDS", 5)) })
	}
}

func (v *blockVictim) rounds(t *testing.T, rounds int) {
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("seed %d, %d rounds (SLUICE_SEED, SLUICE_KILL_ROUNDS)", seed, rounds)
	rng := rand.New(rand.NewPCG(seed, 17))
	d := v.export.serve(t)
	r := newRecorder(d.sock, 4, rng.Uint64())
	for round := range rounds {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() { defer close(done); r.run(t, stop) }()
		time.Sleep(time.Duration(50+rng.IntN(200)) * time.Millisecond)
		killed := v.kill(t, d, r, rng)
		time.Sleep(time.Duration(50+rng.IntN(200)) * time.Millisecond)
		close(stop)
		<-done
		if err := r.verify(v.kept); err != nil || t.Failed() {
			t.Fatalf("round %d, killed %q, seed %d: %v", round, killed, seed, err)
		}
	}
	t.Logf("blocks that became durable: %d, reads: %d, connections that were lost: %d",
		r.covered.Load(), r.reads.Load(), r.lost.Load())
	if r.covered.Load() == 0 || v.server && r.lost.Load() == 0 {
		t.Error("nothing became durable, or nobody noticed that the server was killed")
	}
	if strings.Contains(d.log.String(), "panic") {
		t.Errorf("the server panicked:\n%s", d.log)
	}
}

// kill kills those who are meant, at the same time as far as that can be, and starts the server
// again; the cluster starts its own.
func (v *blockVictim) kill(t *testing.T, d *device, r *recorder,
	rng *rand.Rand) (killed []string) {
	t.Helper()
	var pids []int
	for _, i := range rng.Perm(4)[:v.iods] {
		name := fmt.Sprint("iod", i+1)
		if st, err := d.cluster.state(); err == nil {
			for _, p := range st.Processes {
				if p.Name == name && p.PID > 0 {
					pids, killed = append(pids, p.PID), append(killed, name)
				}
			}
		}
	}
	if v.server {
		pids, killed = append(pids, d.cmd.Process.Pid), append(killed, "the server")
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be on its way out already
	}
	if v.server {
		<-d.exited
		if v.gone {
			r.forget()
		}
		d.start(t)
	}
	return killed
}

// TestRecorderNotices: a device that forgets everything with its server is found out.
func TestRecorderNotices(t *testing.T) {
	t.Parallel()
	k := exportKind{export: fmt.Sprintf("mem=%d", deviceBytes)}
	d := k.serve(t)
	r := newRecorder(d.sock, 2, 1)
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for end := time.Now().Add(readyLimit); r.covered.Load() < 50 && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	r.run(t, stop)
	must(t, r.verify(true))
	d.restart(t)
	if err := r.verify(false); !errors.Is(err, errWrong) {
		t.Errorf("after all of it was lost: %v", err)
	}
}

// restart kills the server and starts another one in its place.
func (d *device) restart(t *testing.T) {
	t.Helper()
	must(t, d.cmd.Process.Kill())
	<-d.exited
	d.start(t)
}
