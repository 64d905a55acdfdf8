package server_test

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
)

// jam has reads wait for a disk that does not answer until the function is called.
func (g *rig) jam(tg iod.Target, reads int) (end func()) {
	g.t.Helper()
	open := make(chan struct{})
	remove := g.disk.Inject(fault.Rule{Ops: fault.Read, Gate: open})
	ended := make(chan error, reads)
	for i := range reads {
		go func() {
			_, err := g.ask(iod.OpRead, tg, iod.Args{Access: seg.Contig(int64(100+i)<<20, 4096)}, nil,
				view(make([]byte, 4096)))
			ended <- err
		}()
	}
	g.await("the disk is jammed", func(c map[string]uint64) bool {
		return c["gate_disk_running"]+c["gate_disk_waiting"]+c["gate_disk_refused"] == uint64(reads)
	})
	return func() {
		close(open)
		remove()
		for range reads {
			if err := <-ended; err != nil && errs.KindOf(err) != errs.Again {
				g.t.Error(err)
			}
		}
	}
}

// await waits for a state of the server's numbers.
func (g *rig) await(what string, fn func(map[string]uint64) bool) {
	g.t.Helper()
	for range 30000 {
		if fn(g.counts()) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	g.t.Fatalf("never: %s: %v", what, g.counts())
}

// TestWhatIsCachedDoesNotWaitForTheDisk: the disk's gate is full and its queue too.
func TestWhatIsCachedDoesNotWaitForTheDisk(t *testing.T) {
	g := newRig(t, writesBack, func(s *setup) {
		s.cfg.Limits = server.Limits{DiskRequests: 4}
		s.cache.ReadaheadBytes = -1
	})
	tg := g.target(1, capability.Read|capability.Write)
	write(t, g.remote, tg, 0, make([]byte, 1<<20))
	read(t, g.remote, tg, 0, 1<<20)
	end := g.jam(tg, 40)
	for range 20 {
		read(t, g.remote, tg, 0, 1<<20)
	}
	if _, err := g.numbered(tg, 1, 0, make([]byte, 4096)); err != nil { // it is written back later
		t.Error(err)
	}
	if c := g.counts(); c["gate_disk_waiting"] == 0 || c["gate_disk_running"] == 0 {
		t.Errorf("the disk is not jammed: %v", c)
	}
	end()
	g.awaitIdle(t)
}

func TestTooManyRequestsAreToldToComeAgain(t *testing.T) {
	g := newRig(t, func(s *setup) {
		s.cfg.Limits = server.Limits{DiskRequests: 1, QueueRequests: 2}
		s.cache.ReadaheadBytes = -1
	})
	tg := g.target(1, capability.Read|capability.Write)
	end := g.jam(tg, 8)
	if n := g.counts()["gate_disk_refused"]; n != 5 {
		t.Errorf("%d refused; of 8, one runs and two wait", n)
	}
	end()
	g.awaitIdle(t)
}
