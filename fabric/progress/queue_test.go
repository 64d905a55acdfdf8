package progress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/alloctest"
)

// wire is a source in memory: messages are numbers in a channel. While it rests a goroutine of its
// own receives them in the background, as a provider's does that reads a socket.
type wire struct {
	q         Queue
	in        chan uint64
	carry     []uint64
	woken     chan struct{} // room for one
	rest      chan struct{} // starts the background receiver
	ask       chan struct{} // room for one: somebody wants to poll
	stop      chan struct{}
	delivered atomic.Int64
	rests     atomic.Int64 // how often the background receiver began
	slept     atomic.Int64
	holders   atomic.Int32 // goroutines inside a method that only the poller may call
}

func newWire(t testing.TB, opts fabric.CQOptions) *wire {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	v := NewWatchdog[*Queue]()
	var d provider.Domain
	d.Open(fabric.Caps{Provider: "wire"})
	w := &wire{in: make(chan uint64, 1024), woken: make(chan struct{}, 1),
		rest: make(chan struct{}, 1), ask: make(chan struct{}, 1), stop: make(chan struct{})}
	w.q.Open(w, w, opts, Config{Domain: &d, Pace: Pace{Looks: 4, Polls: 4}, Spinners: &Spinners{},
		Watchdog: v, Delivered: func(got []fabric.Completion) { w.delivered.Add(int64(len(got))) }})
	var all sync.WaitGroup
	all.Go(func() { v.Run(ctx) })
	all.Go(w.receive)
	w.rest <- struct{}{}
	t.Cleanup(func() {
		_ = w.q.Close()
		cancel()
		close(w.stop)
		all.Wait()
	})
	return w
}

func (w *wire) enter() {
	if w.holders.Add(1) != 1 {
		panic("two goroutines have the turn")
	}
}

func (w *wire) exit() { w.holders.Add(-1) }

// push adds a completion; even ones are solicited.
func (w *wire) push(v uint64) {
	w.q.Push(&fabric.Completion{Op: fabric.OpRecv, Context: v}, v%2 == 0)
}

func (w *wire) deliver(v uint64, b *Batch) {
	if !b.Add(&w.q, &fabric.Completion{Op: fabric.OpRecv, Context: v}) {
		w.push(v)
	}
}

func (w *wire) Poll(looks int, b *Batch) bool {
	w.enter()
	defer w.exit()
	did := false
	for _, v := range w.carry {
		w.deliver(v, b)
		did = true
	}
	w.carry = w.carry[:0]
	for range looks {
		select {
		case v := <-w.in:
			w.deliver(v, b)
			did = true
		default:
		}
	}
	return did
}

func (w *wire) Arm() bool {
	w.enter()
	defer w.exit()
	return len(w.in) == 0 && len(w.carry) == 0
}

func (w *wire) Sleep() {
	w.enter()
	defer w.exit()
	w.slept.Add(1)
	select {
	case v := <-w.in:
		w.carry = append(w.carry, v)
	case <-w.woken:
	}
}

func (w *wire) Awake(woken bool) {
	w.enter()
	defer w.exit()
	if woken {
		select {
		case <-w.woken:
		default:
		}
	}
}

func (w *wire) Wake() { w.woken <- struct{}{} }

func (w *wire) Prepare() bool { return len(w.carry) == 0 }

func (w *wire) Start() { w.rest <- struct{}{} }

func (w *wire) Yield(wait bool) bool {
	if wait {
		select {
		case w.ask <- struct{}{}:
		default:
		}
	}
	return false
}

func (w *wire) Resume() { panic("the receiver yields by itself") }

func (w *wire) receive() {
	for {
		select {
		case <-w.stop:
			return
		case <-w.rest:
		}
		w.rests.Add(1)
		for resting := true; resting; {
			select {
			case <-w.stop:
				return
			case v := <-w.in:
				w.push(v)
			case <-w.ask:
				resting = false
				w.q.Yielded()
			}
		}
	}
}

// TestEveryCompletionOnce has several goroutines wait, poll, give up and be woken while others send
// and push, and demands that each completion is given out once.
func TestEveryCompletionOnce(t *testing.T) {
	for _, spin := range []time.Duration{0, -1, 20 * time.Microsecond} {
		t.Run(fmt.Sprint("spin ", spin), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			const each, senders, takers = 3000, 2, 4
			total := each * senders
			w := newWire(t, fabric.CQOptions{Depth: 2 * total, Spin: spin})
			var got sync.Map
			var count atomic.Int64
			ctx, done := context.WithCancel(context.Background())
			defer done()
			var all sync.WaitGroup
			for s := range senders {
				all.Go(func() { send(w, rand.New(rand.NewPCG(seed, uint64(s))), s*each, each) })
			}
			for i := range takers {
				rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
				all.Go(func() {
					dst := make([]fabric.Completion, 1+rng.IntN(5))
					for ctx.Err() == nil {
						n := takeSome(t, w, rng, ctx, dst)
						for _, c := range dst[:n] {
							if _, twice := got.LoadOrStore(c.Context, true); twice {
								t.Errorf("%d was given out twice", c.Context)
							}
						}
						if count.Add(int64(n)) == int64(total) {
							done()
						}
					}
				})
			}
			all.Wait()
			if w.delivered.Load() != int64(total) {
				t.Fatalf("%d were delivered, want %d", w.delivered.Load(), total)
			}
		})
	}
}

// send sends numbers, by the wire and past it, in bursts and with pauses.
func send(w *wire, rng *rand.Rand, from, n int) {
	for v := from; v < from+n; v++ {
		if rng.IntN(8) == 0 {
			w.push(uint64(v))
		} else {
			w.in <- uint64(v)
		}
		switch rng.IntN(400) {
		case 0:
			time.Sleep(3 * Period) // long enough to rest
		case 1, 2, 3:
			time.Sleep(50 * time.Microsecond)
		}
	}
}

func takeSome(
	t *testing.T, w *wire, rng *rand.Rand, ctx context.Context, dst []fabric.Completion,
) int {
	switch rng.IntN(10) {
	case 0:
		return w.q.Poll(dst)
	case 1:
		w.q.Wake()
	case 2, 3:
		limit, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(300))*time.Microsecond)
		defer cancel()
		ctx = limit
	}
	n, err := w.q.Wait(ctx, dst)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	return n
}

// TestContextEndsASleeper: a poller that sleeps in the source notices the end of its context
// although nothing listens to it.
func TestContextEndsASleeper(t *testing.T) {
	w := newWire(t, fabric.CQOptions{Depth: 4})
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		slept := w.slept.Load()
		ended := make(chan error, 1)
		go func() {
			_, err := w.q.Wait(ctx, make([]fabric.Completion, 1))
			ended <- err
		}()
		until(t, "it sleeps", func() bool { return w.slept.Load() > slept })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("Wait: %v", err)
		}
	}
}

func TestRestsWhenLeftAlone(t *testing.T) {
	w := newWire(t, fabric.CQOptions{Depth: 4})
	dst := make([]fabric.Completion, 1)
	for round := range int64(3) {
		w.in <- 1
		if n, err := w.q.Wait(context.Background(), dst); n != 1 || err != nil {
			t.Fatalf("Wait: %d, %v", n, err)
		}
		until(t, "it rests", func() bool { return w.q.turn.Resting() })
		w.in <- 2 // nobody waits: the source takes it
		until(t, "it was pushed", func() bool { return w.q.ready.Load() })
		if n := w.q.Poll(dst); n != 1 || dst[0].Context != 2 {
			t.Fatalf("Poll in round %d: %d %v", round, n, dst[0])
		}
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	w := newWire(t, fabric.CQOptions{Depth: 4})
	ended := make(chan error, 3)
	for range cap(ended) {
		go func() {
			_, err := w.q.Wait(context.Background(), make([]fabric.Completion, 1))
			ended <- err
		}()
	}
	until(t, "they wait", func() bool { return w.q.parked.Load() == 2 && w.slept.Load() > 0 })
	_ = w.q.Close()
	for range cap(ended) {
		if err := <-ended; errs.KindOf(err) != errs.Closed {
			t.Fatalf("Wait: %v", err)
		}
	}
}

func TestSolicitedOnly(t *testing.T) {
	w := newWire(t, fabric.CQOptions{Depth: 8, SolicitedOnly: true})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	w.in <- 1
	dst := make([]fabric.Completion, 4)
	if n, err := w.q.Wait(ctx, dst); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Wait woke for what was not solicited: %d, %v", n, err)
	}
	w.in <- 2
	if n, err := w.q.Wait(context.Background(), dst); n != 2 || err != nil {
		t.Fatalf("Wait: %d, %v", n, err)
	}
	w.push(3)
	if n := w.q.Poll(dst); n != 1 {
		t.Fatalf("Poll: %d", n)
	}
}

func TestWaitingAllocatesNothing(t *testing.T) {
	w := newWire(t, fabric.CQOptions{Depth: 8})
	dst := make([]fabric.Completion, 4)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var c fabric.Completion
	n := alloctest.PerRun(0, 100, func() {
		w.q.Push(&c, true)
		if n, err := w.q.Wait(ctx, dst); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		w.in <- 1
		if n, err := w.q.Wait(ctx, dst); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	})
	if n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("never: %s", what)
		}
	}
}
