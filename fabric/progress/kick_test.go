package progress

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// late is a source whose poller is kicked when it has armed and does not sleep yet: by a peer's
// message that may be taken from now on, or by a device that has to be armed too.
type late struct {
	q      Queue
	kicked bool
	woken  chan struct{} // room for one
}

func (l *late) Poll(_ int, b *Batch) bool {
	return l.kicked && b.Add(&l.q, &fabric.Completion{Op: fabric.OpRecv, Context: 1})
}

func (l *late) Arm() bool {
	if !l.kicked {
		l.kicked = true
		l.q.Kick()
	}
	return true
}

func (l *late) Sleep() { <-l.woken }

func (l *late) Awake(bool) {}

func (l *late) Wake() { l.woken <- struct{}{} }

func (l *late) Prepare() bool { return true }

func (l *late) Start() {}

func (l *late) Yield(bool) bool { return true }

func (l *late) Resume() {}

// TestKickBeforeSleep: a poller does not sleep over what it was kicked for when it had armed.
func TestKickBeforeSleep(t *testing.T) {
	l := &late{woken: make(chan struct{}, 1)}
	var d provider.Domain
	d.Open(fabric.Caps{Provider: "late"})
	l.q.Open(l, l, fabric.CQOptions{Depth: 1, Spin: -1}, Config{Domain: &d,
		Pace: Pace{Looks: 1, Polls: 1}, Spinners: &Spinners{}, Watchdog: NewWatchdog[*Queue](),
		Delivered: func([]fabric.Completion) {}})
	got := make(chan int, 1)
	go func() {
		n, _ := l.q.Wait(context.Background(), make([]fabric.Completion, 1))
		got <- n
	}()
	select {
	case n := <-got:
		if n != 1 {
			t.Errorf("%d completions", n)
		}
	case <-time.After(time.Minute):
		t.Error("it sleeps, and nothing comes any more that would wake it")
	}
	_ = l.q.Close()
}
