package progress

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// device is a source that nobody looks after while its turn rests, as those of RDMA devices are. A
// waiter tries to take the turn while the watchdog has it.
type device struct {
	q       Queue
	refused bool // the waiter was
}

func (d *device) Poll(int, *Batch) bool { return false }

func (d *device) Arm() bool { return true }

func (d *device) Sleep() {}

func (d *device) Awake(bool) {}

func (d *device) Wake() {}

func (d *device) Prepare() bool {
	d.refused = !d.q.take(true)
	return true
}

func (d *device) Start() {}

func (d *device) Yield(bool) bool { return true }

func (d *device) Resume() {}

// TestParksWhileTheTurnGoesToRest: a waiter that was refused the turn because the watchdog had it,
// and that parks when it rests, takes it. Nobody else polls, and nothing wakes who is parked.
func TestParksWhileTheTurnGoesToRest(t *testing.T) {
	d := &device{}
	var of provider.Domain
	of.Open(fabric.Caps{Provider: "device"})
	d.q.Open(d, d, fabric.CQOptions{Depth: 1}, Config{Domain: &of, Spinners: &Spinners{},
		Watchdog: NewWatchdog[*Queue](), Delivered: func([]fabric.Completion) {}})
	if !d.q.take(true) {
		t.Fatal("the turn does not rest at first")
	}
	d.q.leave()
	for d.q.Check() { // of the watchdog
	}
	if !d.refused {
		t.Fatal("the waiter was not refused")
	}
	parked := make(chan error, 1)
	go func() { parked <- d.q.park(context.Background()) }()
	select {
	case err := <-parked:
		if err != nil || !d.q.take(true) {
			t.Errorf("the waiter does not get the turn: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the waiter is parked, the turn rests, and nobody polls")
	}
}
