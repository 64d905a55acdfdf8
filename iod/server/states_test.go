package server_test

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
)

// TestStatesTellWhereTheTimeGoes has a slow disk: that is where it goes.
func TestStatesTellWhereTheTimeGoes(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	const slow = 20 * time.Millisecond
	g.disk.Inject(fault.Rule{Ops: fault.Read | fault.Write | fault.Sync, Delay: slow})
	for range 3 {
		write(t, g.remote, tg, 0, make([]byte, 100))
	}
	read(t, g.remote, tg, 1<<20, 100)
	_, err := g.remote.Sync(t.Context(), tg)
	g.check(err)
	g.awaitIdle(t)
	seen := map[string]bool{}
	for _, s := range g.srv.States() {
		seen[s.Op+" "+s.State] = true
		var n uint64
		for i, k := range s.Buckets {
			n += k
			if k > 0 && s.State == "disk" && time.Duration(1)<<i < slow {
				t.Errorf("%s: %d requests took less than %v", s.Op, k, time.Duration(1)<<i)
			}
		}
		if n != s.Count {
			t.Errorf("%s %s: %d of %d are in the histogram", s.Op, s.State, n, s.Count)
		}
		if want := map[string]uint64{"read": 1, "write": 3, "sync": 1}[s.Op]; n != want && want > 0 {
			t.Errorf("%s %s: %d, want %d", s.Op, s.State, n, want)
		}
	}
	for _, want := range []string{
		"read init", "read disk", "read send_init", "read send", "read fin",
		"write init", "write send_init", "write send", "write disk", "write fin", "sync disk",
	} {
		if !seen[want] {
			t.Errorf("no times of %s", want)
		}
	}
	if c := g.counts(); c["us_write_disk"] < uint64(3*slow.Microseconds()) {
		t.Errorf("writes were at the disk for %d us", c["us_write_disk"])
	}
	seenByOnlookers(t, g, slow)
}

// seenByOnlookers: the requests are among the slowest, with where their time went, who asked, and
// how much was moved.
func seenByOnlookers(t *testing.T, g *rig, slow time.Duration) {
	t.Helper()
	var s activity.Snapshot
	g.srv.Activity().Snapshot(&s)
	var read, written uint64
	for _, u := range s.Objects {
		read, written = read+u.Read, written+u.Written
	}
	if len(s.Objects) == 0 || len(s.Clients) == 0 || read == 0 || written == 0 {
		t.Errorf("objects %+v, clients %+v", s.Objects, s.Clients)
	}
	writes := 0
	for _, one := range s.Slow {
		if one.Op != "write" {
			continue
		}
		writes++
		if one.Took < slow || one.Object == 0 || one.Client == 0 || one.Phases[0].Name != "disk" {
			t.Errorf("%+v", one)
		}
	}
	if writes != 3 || len(s.Running) != 0 {
		t.Errorf("%d slow writes, running %+v", writes, s.Running)
	}
}
