package gate

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/alloctest"
)

func testOptions() Options {
	return Options{Name: "a test", Bytes: 1 << 20, Count: 8, Age: time.Hour,
		Share: &Share{Queue: 64, Linger: time.Millisecond, EvenCount: 2, EvenBytes: 64 << 10}}
}

// booth is a gate with a clock of its own, and people who stand before it.
type booth struct {
	t  *testing.T
	g  *Gate
	at time.Duration
	wg sync.WaitGroup
}

func newBooth(t *testing.T, o Options) *booth {
	b := &booth{t: t, g: New(o)}
	b.g.now = func() time.Duration { return b.at } // under the gate's lock
	t.Cleanup(b.wg.Wait)
	return b
}

// person waits before the gate; entered is closed when it is let in.
type person struct {
	Ticket
	who     uint64
	entered chan struct{}
	err     error
	cancel  func()
}

// come makes somebody come, and returns when they are in, refused, or wait.
func (b *booth) come(who uint64, level int, cost int64) *person {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &person{who: who, entered: make(chan struct{}), cancel: cancel}
	before := b.g.Usage()
	b.wg.Go(func() {
		p.err = b.g.Enter(ctx, &p.Ticket, Request{Client{ID: who}, level, cost})
		close(p.entered)
	})
	for range 1_000_000 {
		now := b.g.Usage()
		if now.Waits != before.Waits || now.Refused != before.Refused || now.Count != before.Count {
			return p
		}
		time.Sleep(10 * time.Microsecond)
	}
	b.t.Fatal("nobody came")
	return nil
}

// in tells whether the person comes in, for a test that expects it.
func (p *person) in() bool {
	select {
	case <-p.entered:
		return p.err == nil
	case <-time.After(time.Minute):
		return false
	}
}

// waits tells whether the person is still outside after a moment.
func (p *person) waits() bool {
	select {
	case <-p.entered:
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

// drain lets one after the other leave and tells the order in which others come in.
func (b *booth) drain(inside []*person, waiting []*person) (order []uint64) {
	for len(inside) > 0 {
		p := inside[0]
		inside = inside[1:]
		b.g.mu.Lock()
		var before []bool
		for _, w := range waiting {
			before = append(before, w.inside)
		}
		b.g.mu.Unlock()
		b.g.Leave(&p.Ticket)
		b.g.mu.Lock()
		for i, w := range waiting {
			if w.inside && !before[i] {
				order = append(order, w.who)
				inside = append(inside, w)
			}
		}
		b.g.mu.Unlock()
		waiting = slices.DeleteFunc(waiting, func(w *person) bool { return slices.Contains(inside, w) })
	}
	if len(waiting) > 0 {
		b.t.Errorf("%d wait although nobody is inside", len(waiting))
	}
	return order
}

// TestGateGivesEachClientAsMuch has a client with many requests and two with few; whoever leaves
// lets in the clients by turns.
func TestGateGivesEachClientAsMuch(t *testing.T) {
	o := testOptions()
	o.Count = 1
	b := newBooth(t, o)
	first := b.come(9, 0, 4096)
	var waiting []*person
	for range 6 {
		waiting = append(waiting, b.come(1, 0, 4096))
	}
	for range 2 {
		waiting = append(waiting, b.come(2, 0, 4096), b.come(3, 0, 8192))
	}
	order := b.drain([]*person{first}, waiting)
	// Client 3 asks for twice as much a time, so it has to wait for two rounds.
	if want := []uint64{1, 2, 3, 1, 2, 1, 3, 1, 1, 1}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func TestGateLetsHigherLevelsFirstButNotForEver(t *testing.T) {
	o := testOptions()
	o.Count, o.Age = 1, time.Second
	b := newBooth(t, o)
	first := b.come(9, 0, 4096)
	waiting := []*person{b.come(1, 0, 4096)}
	b.g.mu.Lock()
	b.at = 2 * time.Second
	b.g.mu.Unlock()
	waiting = append(waiting, b.come(2, 0, 4096), b.come(3, 1, 4096), b.come(3, 2, 4096))
	order := b.drain([]*person{first}, waiting)
	if !slices.Equal(order, []uint64{1, 3, 3, 2}) {
		t.Errorf("order %v", order)
	}
}

// TestGateKeepsRoomForTheNextClient floods it from one client.
func TestGateKeepsRoomForTheNextClient(t *testing.T) {
	b := newBooth(t, testOptions())
	var all []*person
	for range 20 {
		all = append(all, b.come(1, 0, 4096))
	}
	if running := b.g.Usage().Count; running > 4 {
		t.Errorf("%d of one client run in a gate for 8", running)
	} else if other := b.come(2, 0, 4096); !other.in() {
		t.Error("there is no room for another client")
	}
	for _, p := range all {
		p.cancel()
	}
	for _, p := range all {
		if <-p.entered; p.err == nil {
			b.g.Leave(&p.Ticket)
		}
	}
}

// TestEvenGateHoldsTheManyToTheFew has a client with three requests and one with twenty.
func TestEvenGateHoldsTheManyToTheFew(t *testing.T) {
	o := testOptions()
	o.Count, o.Share.Even = 32, true
	b := newBooth(t, o)
	var few, many []*person
	for range 3 {
		few = append(few, b.come(1, 0, 4096))
	}
	for range 20 {
		many = append(many, b.come(2, 0, 4096))
	}
	if n := b.g.clients.all[Client{ID: 2}].count; n != 3 {
		t.Errorf("%d of the many run beside 3 of the few", n)
	}
	for _, p := range few {
		b.g.Leave(&p.Ticket)
	}
	b.g.mu.Lock()
	b.at += o.Share.Linger
	b.g.admitLocked() // as the next one who comes or goes would
	n := b.g.clients.all[Client{ID: 2}].count
	b.g.mu.Unlock()
	if n != 16 { // of 32, one part of two: there is room for another client
		t.Errorf("%d of the many run alone", n)
	}
	b.drain(slices.Clone(many[:n]), many[n:]) // one client's come in as they came
}

func TestGateRefusesWhoCannotWait(t *testing.T) {
	o := testOptions()
	o.Count, o.Share.Queue = 1, 2
	b := newBooth(t, o)
	first := b.come(1, 0, 4096)
	second, third := b.come(1, 0, 4096), b.come(1, 0, 4096)
	fourth := b.come(1, 0, 4096)
	if <-fourth.entered; errs.KindOf(fourth.err) != errs.Again || b.g.Usage().Refused != 1 {
		t.Errorf("%v, %d counted", fourth.err, b.g.Usage().Refused)
	}
	third.cancel()
	if <-third.entered; !errors.Is(third.err, context.Canceled) {
		t.Error(third.err)
	}
	b.drain([]*person{first}, []*person{second})
	if b.g.count != 0 || b.g.bytes != 0 || b.g.waiting != 0 || b.g.some != 0 {
		t.Errorf("left over: %+v", b.g)
	}
}

// TestLargeRequestIsNotOvertakenForEver: one that needs all of the gate comes while small ones
// keep it half full.
func TestLargeRequestIsNotOvertakenForEver(t *testing.T) {
	b := newBooth(t, testOptions())
	small := []*person{b.come(1, 0, 300<<10), b.come(2, 0, 300<<10)}
	large := b.come(3, 0, 8<<20)
	next := b.come(1, 0, 300<<10)
	b.g.Leave(&small[0].Ticket)
	b.g.Leave(&small[1].Ticket)
	if !large.in() || !next.waits() {
		t.Fatal("a small request has overtaken the large one")
	}
	b.drain([]*person{large}, []*person{next})
}

// TestGateUnderLoad has many who come, go and give up at random; bounds hold at every moment, and
// nothing is left behind.
func TestGateUnderLoad(t *testing.T) {
	o := testOptions()
	o.Share.Even, o.Age, o.Share.Queue = true, time.Millisecond, 4
	g := New(o)
	var running, load atomic.Int64
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			var tk Ticket
			for range 400 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*time.Microsecond)
				cost := 1 + rng.Int64N(400<<10)
				err := g.Enter(ctx, &tk, Request{Client{ID: uint64(i / 4)}, rng.IntN(3), cost})
				if err == nil {
					if n, b := running.Add(1), load.Add(cost); n > 8 || n > 1 && b > 1<<20+400<<10 {
						t.Errorf("%d requests of %d bytes", n, b)
					}
					time.Sleep(time.Duration(rng.IntN(100)) * time.Microsecond)
					running.Add(-1)
					load.Add(-cost)
					g.Leave(&tk)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if u := g.Usage(); u.Count != 0 || u.Bytes != 0 || u.Waiting != 0 || g.some != 0 {
		t.Errorf("left over: %+v", u)
	}
	for _, c := range g.clients.all {
		if c.requests != 0 || c.wanted != 0 || !c.link.In() {
			t.Errorf("left over: %+v", c)
		}
	}
	if s := g.clients; s.wants.count[0] != len(s.all) || s.spread.count[0] != len(s.all) {
		t.Errorf("%d clients, counted as %d and %d", len(s.all), s.wants.count[0], s.spread.count[0])
	}
}

func TestGateAllocatesNothing(t *testing.T) {
	g := New(testOptions())
	var tk Ticket
	ctx := context.Background()
	if n := alloctest.PerRun(0, 100, func() {
		if err := g.Enter(ctx, &tk, Request{Client{ID: 1}, 0, 4096}); err != nil {
			t.Fatal(err)
		}
		g.Leave(&tk)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGate(b *testing.B) {
	g := New(testOptions())
	var tk Ticket
	ctx := context.Background()
	for b.Loop() {
		_ = g.Enter(ctx, &tk, Request{Client{ID: 1}, 0, 4096})
		g.Leave(&tk)
	}
}

// TestGateIsFairByBytes has clients whose requests are of different sizes, each with some waiting
// all the time: what they get differs by no more than two of the largest requests.
func TestGateIsFairByBytes(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	const most = 64 << 10
	o := testOptions()
	o.Count, o.Share.Queue = 1, 4
	g := New(o)
	type visitor struct {
		Ticket
		who uint64
	}
	var waiting []*visitor
	var got [4]int64
	come := func(who uint64) {
		v := &visitor{who: who}
		size := 1 + rng.Int64N(most/4*int64(who+1))
		if _, err := g.begin(&v.Ticket, Request{Client: Client{ID: who}, Bytes: size}); err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, v)
	}
	for range 3 {
		for who := range got {
			come(uint64(who))
		}
	}
	for range 4000 {
		i := slices.IndexFunc(waiting, func(v *visitor) bool { return v.inside })
		v := waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		got[v.who] += v.cost()
		come(v.who)
		g.Leave(&v.Ticket)
		if slices.Max(got[:])-slices.Min(got[:]) > 2*most+quantum {
			t.Fatalf("seed %d: the clients got %v bytes", seed, got)
		}
	}
}

// TestWaitingAtASharedGateAllocatesNothing: with tickets that are used again.
func TestWaitingAtASharedGateAllocatesNothing(t *testing.T) {
	o := testOptions()
	o.Count = 1
	g := New(o)
	ctx := context.Background()
	ask, done := make(chan struct{}), make(chan struct{})
	go func() {
		var tk Ticket
		for range ask {
			_ = g.Enter(ctx, &tk, Request{Client{ID: 2}, 1, 4096})
			g.Leave(&tk)
			done <- struct{}{}
		}
	}()
	defer close(ask)
	var tk Ticket
	if n := alloctest.PerRun(0, 200, func() {
		_ = g.Enter(ctx, &tk, Request{Client{ID: 1}, 0, 4096})
		ask <- struct{}{}
		for g.Usage().Waiting == 0 {
			runtime.Gosched()
		}
		g.Leave(&tk)
		<-done
	}); n > 0 {
		t.Errorf("%.1f allocations a wait", n)
	}
}
