package msg

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// shmProvider is shared memory between two domains of this process.
func shmProvider(t testing.TB) provider {
	p := provider{name: "shm"}
	p.addr = "unix:" + filepath.Join(t.TempDir(), "sock")
	p.open = func(t testing.TB, _ uint64) (*sim.Net, fabric.Domain, fabric.Domain) {
		var doms [2]fabric.Domain
		for i := range doms {
			d, err := shm.Open(shm.Options{})
			if err != nil {
				t.Fatal(err)
			}
			doms[i] = d
		}
		return nil, doms[0], doms[1]
	}
	return p
}

// TestWaysOfProgress makes the same random requests with each way of progress at either side.
func TestWaysOfProgress(t *testing.T) {
	for _, p := range and(simProviders()[1], shmProvider(t)) {
		for _, way := range []Progress{ProgressAny, ProgressPoll, ProgressThread} {
			t.Run(p.name+"/"+way.String(), func(t *testing.T) {
				r := modelRig(t, p, func(client, server *Options) {
					client.Progress, server.Progress = way, way
					client.CallTimeout = 20 * time.Second
				})
				if err := runModel(t, r, p.some(20), 4); err != nil {
					t.Fatal(err)
				}
				if err := runModel(t, r, p.some(20), 1); err != nil { // a caller that is alone
					t.Fatal(err)
				}
			})
		}
	}
}

// TestPollersHandOver: with ProgressPoll a caller that leaves lets another one poll.
func TestPollersHandOver(t *testing.T) {
	r := newRig(t, tcpProvider(), answerer(), func(client, _ *Options) {
		client.Progress = ProgressPoll
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if err := call(r.conn, 20*time.Second, &Request{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestWaitsBringsAPoller: a handler that says that it waits is relieved at once.
func TestWaitsBringsAPoller(t *testing.T) {
	for _, p := range and(tcpProvider(), shmProvider(t)) {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, p, HandlerFunc(func(_ context.Context, c *Call) {
				c.Waits()
				await(t, c.s.duty.Taken)
				_ = c.Reply(nil, 0)
			}), nil)
			// The first request finds one goroutine that polls, and takes it.
			if err := call(r.conn, 20*time.Second, &Request{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestLimitsAreKept: what was measured is stored as JSON, and good for a node.
func TestLimitsAreKept(t *testing.T) {
	_, domain, other := simProviders()[0].open(t, 0)
	t.Cleanup(func() { _, _ = domain.Close(), other.Close() })
	want := Limits{InlineMax: 2048, EagerMax: -1, Unit: 1 << 20}
	text, err := json.Marshal(map[string]Limits{domain.Caps().Provider: want})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Domain: domain}
	if err := json.Unmarshal(text, &o.Limits); err != nil {
		t.Fatal(err)
	}
	n, err := NewNode(o)
	if err != nil {
		t.Fatalf("limits that were measured are refused: %v", err)
	}
	if got := n.rungs[0].limits; got != (Limits{InlineMax: 2048, Unit: 1 << 20}) {
		t.Fatalf("%+v became %+v", want, got)
	}
	_ = n.Close()
	o.Limits = map[string]Limits{domain.Caps().Provider: {Unit: 5}}
	if _, err := NewNode(o); errs.KindOf(err) != errs.Invalid {
		t.Fatalf("a unit of five bytes: %v", err)
	}
}
