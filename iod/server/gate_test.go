package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/wire"
)

func testLimits() limits {
	return limits{name: "a test", requests: 8, bytes: 1 << 20, queue: 64,
		evenRequests: 2, evenBytes: 64 << 10, age: time.Hour, linger: time.Millisecond}
}

// booth is a gate with a clock of its own, and people who stand before it.
type booth struct {
	t  *testing.T
	g  *gate
	at time.Duration
	wg sync.WaitGroup
}

func newBooth(t *testing.T, l limits) *booth {
	b := &booth{t: t, g: newGate(l)}
	b.g.now = func() time.Duration { return b.at } // under the gate's lock
	t.Cleanup(b.wg.Wait)
	return b
}

// person waits before the gate; entered is closed when it is let in.
type person struct {
	ticket
	who     uint64
	entered chan struct{}
	err     error
	cancel  func()
}

// come makes somebody come, and returns when they are in, refused, or wait.
func (b *booth) come(who uint64, level msg.Level, cost int64) *person {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &person{who: who, entered: make(chan struct{}), cancel: cancel}
	b.g.mu.Lock()
	before := b.g.counts
	running := b.g.running
	b.g.mu.Unlock()
	b.wg.Go(func() {
		p.err = b.g.enter(ctx, &p.ticket, clientKey{session: who}, level, cost)
		close(p.entered)
	})
	for range 1_000_000 {
		b.g.mu.Lock()
		now, run := b.g.counts, b.g.running
		b.g.mu.Unlock()
		if now.waits != before.waits || now.refused != before.refused || run != running {
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
			before = append(before, w.granted)
		}
		b.g.mu.Unlock()
		b.g.leave(&p.ticket)
		b.g.mu.Lock()
		for i, w := range waiting {
			if w.granted && !before[i] {
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
	l := testLimits()
	l.requests = 1
	b := newBooth(t, l)
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
	l := testLimits()
	l.requests, l.age = 1, time.Second
	b := newBooth(t, l)
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
	b := newBooth(t, testLimits())
	var all []*person
	for range 20 {
		all = append(all, b.come(1, 0, 4096))
	}
	b.g.mu.Lock()
	running := b.g.running
	b.g.mu.Unlock()
	if running > 4 {
		t.Errorf("%d of one client run in a gate for 8", running)
	} else if other := b.come(2, 0, 4096); !other.in() {
		t.Error("there is no room for another client")
	}
	for _, p := range all {
		p.cancel()
	}
	for _, p := range all {
		if <-p.entered; p.err == nil {
			b.g.leave(&p.ticket)
		}
	}
}

// TestEvenGateHoldsTheManyToTheFew has a client with three requests and one with twenty.
func TestEvenGateHoldsTheManyToTheFew(t *testing.T) {
	l := testLimits()
	l.requests, l.even = 32, true
	b := newBooth(t, l)
	var few, many []*person
	for range 3 {
		few = append(few, b.come(1, 0, 4096))
	}
	for range 20 {
		many = append(many, b.come(2, 0, 4096))
	}
	if n := b.g.clients[clientKey{session: 2}].running; n != 3 {
		t.Errorf("%d of the many run beside 3 of the few", n)
	}
	for _, p := range few {
		b.g.leave(&p.ticket)
	}
	b.g.mu.Lock()
	b.at += l.linger
	b.g.admitLocked() // as the next one who comes or goes would
	n := b.g.clients[clientKey{session: 2}].running
	b.g.mu.Unlock()
	if n != 16 { // of 32, one part of two: there is room for another client
		t.Errorf("%d of the many run alone", n)
	}
	b.drain(slices.Clone(many[:n]), many[n:]) // one client's come in as they came
}

func TestGateRefusesWhoCannotWait(t *testing.T) {
	l := testLimits()
	l.requests, l.queue = 1, 2
	b := newBooth(t, l)
	first := b.come(1, 0, 4096)
	second, third := b.come(1, 0, 4096), b.come(1, 0, 4096)
	fourth := b.come(1, 0, 4096)
	if <-fourth.entered; errs.KindOf(fourth.err) != errs.Again || b.g.counts.refused != 1 {
		t.Errorf("%v, %d counted", fourth.err, b.g.counts.refused)
	}
	third.cancel()
	if <-third.entered; !errors.Is(third.err, context.Canceled) {
		t.Error(third.err)
	}
	b.drain([]*person{first}, []*person{second})
	if b.g.running != 0 || b.g.load != 0 || b.g.waiting != 0 || b.g.some != 0 {
		t.Errorf("left over: %+v", b.g)
	}
}

// TestLargeRequestIsNotOvertakenForEver: one that needs all of the gate comes while small ones
// keep it half full.
func TestLargeRequestIsNotOvertakenForEver(t *testing.T) {
	b := newBooth(t, testLimits())
	small := []*person{b.come(1, 0, 300<<10), b.come(2, 0, 300<<10)}
	large := b.come(3, 0, 8<<20)
	next := b.come(1, 0, 300<<10)
	b.g.leave(&small[0].ticket)
	b.g.leave(&small[1].ticket)
	if !large.in() || !next.waits() {
		t.Fatal("a small request has overtaken the large one")
	}
	b.drain([]*person{large}, []*person{next})
}

// TestGateUnderLoad has many who come, go and give up at random; bounds hold at every moment, and
// nothing is left behind.
func TestGateUnderLoad(t *testing.T) {
	l := testLimits()
	l.even, l.age, l.queue = true, time.Millisecond, 4
	g := newGate(l)
	var running, load atomic.Int64
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			var tk ticket
			for range 400 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*time.Microsecond)
				cost := 1 + rng.Int64N(400<<10)
				err := g.enter(ctx, &tk, clientKey{session: uint64(i / 4)}, msg.Level(rng.IntN(3)), cost)
				if err == nil {
					if n, b := running.Add(1), load.Add(cost); n > 8 || n > 1 && b > 1<<20+400<<10 {
						t.Errorf("%d requests of %d bytes", n, b)
					}
					time.Sleep(time.Duration(rng.IntN(100)) * time.Microsecond)
					running.Add(-1)
					load.Add(-cost)
					g.leave(&tk)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if g.running != 0 || g.load != 0 || g.waiting != 0 || g.some != 0 {
		t.Errorf("left over: %d running, %d bytes, %d waiting", g.running, g.load, g.waiting)
	}
	for _, c := range g.clients {
		if c.requests != 0 || c.wanted != 0 || !c.link.In() {
			t.Errorf("left over: %+v", c)
		}
	}
	if g.wants.count[0] != len(g.clients) || g.spread.count[0] != len(g.clients) {
		t.Errorf("%d clients, counted as %d and %d", len(g.clients), g.wants.count[0],
			g.spread.count[0])
	}
}

func TestGateAllocatesNothing(t *testing.T) {
	g := newGate(testLimits())
	var tk ticket
	ctx := context.Background()
	if n := alloctest.PerRun(0, 100, func() {
		if err := g.enter(ctx, &tk, clientKey{session: 1}, 0, 4096); err != nil {
			t.Fatal(err)
		}
		g.leave(&tk)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGate(b *testing.B) {
	g := newGate(testLimits())
	var tk ticket
	ctx := context.Background()
	for b.Loop() {
		_ = g.enter(ctx, &tk, clientKey{session: 1}, 0, 4096)
		g.leave(&tk)
	}
}

func TestSlotsAreBusyOnce(t *testing.T) {
	var s slots
	st := stamp(7, 1, 1)
	if err := s.take("t", st); err != nil {
		t.Fatal(err)
	}
	if err := s.take("t", stamp(7, 1, 2)); errs.KindOf(err) != errs.Again {
		t.Errorf("two of one slot: %v", err)
	}
	if s.take("t", stamp(7, 2, 1)) != nil || s.take("t", stamp(0, 0, 0)) != nil {
		t.Error("another slot is busy too")
	}
	s.give(st)
	if err := s.take("t", st); err != nil {
		t.Error(err)
	}
}

func stamp(session uint64, slot uint16, seq uint32) wire.Stamp {
	return wire.Stamp{Session: session, Slot: slot, Seq: seq}
}
