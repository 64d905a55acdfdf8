package gate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// visitor is one request as the model knows it.
type visitor struct {
	Ticket
	Request
	nth int // in the order of coming
	at  time.Duration
}

// model drives a gate by random operations, one at a time and without goroutines, and holds it
// against what it can see from outside: a list of those inside and a list of those who wait.
type model struct {
	t       testing.TB
	seed    uint64
	rng     *rand.Rand
	g       *Gate
	at      time.Duration
	came    int
	inside  []*visitor
	waiting []*visitor // in the order of coming
	refused uint64
}

// runModel prints the seed when something is wrong.
func runModel(t *testing.T, o Options, check func(*model, *visitor)) {
	base := rand.Uint64()
	for seed := base; seed != base+60; seed++ {
		m := &model{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), g: New(o)}
		m.g.now = func() time.Duration { return m.at }
		for range 400 {
			m.step(check)
			if t.Failed() {
				return
			}
		}
		m.finish(check)
	}
}

func (m *model) failf(format string, args ...any) {
	m.t.Helper()
	m.t.Errorf("seed %d: %s", m.seed, fmt.Sprintf(format, args...))
}

// step does one operation; settle finds out who has come in by it.
func (m *model) step(check func(*model, *visitor)) {
	m.at += time.Duration(m.rng.IntN(3)) * time.Millisecond
	switch k := m.rng.IntN(10); {
	case k < 5:
		m.come(check)
	case k < 8 && len(m.inside) > 0:
		i := m.rng.IntN(len(m.inside))
		v := m.inside[i]
		m.inside = slices.Delete(m.inside, i, i+1)
		m.g.Leave(&v.Ticket)
	case len(m.waiting) > 0:
		m.cancel(m.rng.IntN(len(m.waiting)))
	}
	m.settle(check)
	m.bounds()
}

func (m *model) come(check func(*model, *visitor)) {
	m.came++
	v := &visitor{nth: m.came, at: m.at, Request: Request{Client: Client{ID: m.rng.Uint64N(4)},
		Level: m.rng.IntN(3), Bytes: m.rng.Int64N(m.g.opts.Bytes + 10)}}
	in, err := m.g.begin(&v.Ticket, v.Request)
	switch {
	case errs.KindOf(err) == errs.Again:
		m.refused++
	case err != nil:
		m.failf("%v", err)
	case in:
		if len(m.waiting) > 0 {
			m.failf("visitor %d overtakes %d who wait", v.nth, len(m.waiting))
		}
		m.inside = append(m.inside, v)
	default:
		m.waiting = append(m.waiting, v)
	}
}

var errGone = errors.New("gone")

// cancel has one give up, sometimes one who was let in meanwhile.
func (m *model) cancel(i int) {
	v := m.waiting[i]
	m.waiting = slices.Delete(m.waiting, i, i+1)
	if err := m.g.giveUp(&v.Ticket, errGone); !errors.Is(err, errGone) {
		m.failf("who gives up is told %v", err)
	}
}

// settle moves those who were let in, in the order in which they were, which check judges.
func (m *model) settle(check func(*model, *visitor)) {
	var in []*visitor
	for _, v := range m.waiting {
		if v.Ticket.inside {
			in = append(in, v)
		}
	}
	for len(in) > 0 {
		i := 0
		if check != nil && len(in) == 1 {
			check(m, in[0])
		}
		if m.g.clients == nil { // the model knows the order
			i = slices.Index(in, m.expected())
			if i < 0 {
				m.failf("let in: %d others, whose turn it is not", len(in))
				return
			}
		}
		v := in[i]
		in = slices.Delete(in, i, i+1)
		if err := v.waiter.Woken(); err != nil {
			m.failf("let in with %v", err)
		}
		m.waiting = slices.DeleteFunc(m.waiting, func(w *visitor) bool { return w == v })
		m.inside = append(m.inside, v)
	}
	m.idle()
}

// expected is whose turn it is without clients: the oldest of the highest level, but before that
// the oldest of the lowest level that has waited for long.
func (m *model) expected() *visitor {
	var oldest [MaxLevels]*visitor
	top := 0
	for _, v := range m.waiting {
		if oldest[v.Level] == nil {
			oldest[v.Level] = v
		}
		top = max(top, v.Level)
	}
	for _, v := range oldest[:top] {
		if v != nil && m.at-v.at >= m.g.opts.Age {
			return v
		}
	}
	return oldest[top]
}

// heads are the oldest of each client and level who may come in as far as their share goes.
func (m *model) heads() (heads []*visitor) {
	seen := map[Request]bool{}
	for _, v := range m.waiting {
		if k := (Request{Client: v.Client, Level: v.Level}); !seen[k] {
			seen[k] = true
			if m.g.shareLocked(&v.Ticket) {
				heads = append(heads, v)
			}
		}
	}
	return heads
}

// idle checks that nobody waits who could be inside: at least the one whose turn it is must lack
// room.
func (m *model) idle() {
	if len(m.waiting) == 0 {
		return
	}
	if m.g.clients == nil {
		if v := m.expected(); m.g.roomLocked(1, v.bytes) {
			m.failf("visitor %d waits although there is room", v.nth)
		}
		return
	}
	heads := m.heads()
	for _, v := range heads {
		if !m.g.roomLocked(1, v.bytes) {
			return
		}
	}
	if len(heads) > 0 {
		m.failf("%d wait although there is room for each of them", len(heads))
	}
}

// bounds adds up what is inside.
func (m *model) bounds() {
	var bytes int64
	by := map[Client]int{}
	for _, v := range m.inside {
		bytes += v.bytes
		by[v.Client]++
	}
	u := m.g.Usage()
	if u.Bytes != bytes || u.Count != len(m.inside) || u.Waiting != len(m.waiting) ||
		u.Refused != m.refused {
		m.failf("%+v; inside are %d with %d bytes, %d wait, %d were refused", u, len(m.inside),
			bytes, len(m.waiting), m.refused)
	}
	if bytes > m.g.opts.Bytes || len(m.inside) > m.g.opts.Count {
		m.failf("%d bytes, %d requests inside", bytes, len(m.inside))
	}
	if m.g.clients == nil {
		return
	}
	wants := tally{}
	for name, c := range m.g.clients.all {
		if c.count != by[name] || c.requests != c.count+c.waiting || c.link.In() != (c.requests == 0) {
			m.failf("client %v: %+v, %d are inside", name, c, by[name])
		}
		wants.add(c.requests)
		delete(by, name)
	}
	if len(by) > 0 || wants != m.g.clients.wants {
		m.failf("unknown clients %v, or counted wrongly", by)
	}
}

// finish empties the gate.
func (m *model) finish(check func(*model, *visitor)) {
	for len(m.inside) > 0 {
		v := m.inside[0]
		m.inside = m.inside[1:]
		m.g.Leave(&v.Ticket)
		m.settle(check)
	}
	if u := m.g.Usage(); len(m.waiting) > 0 || u.Bytes != 0 || u.Count != 0 || m.g.some != 0 {
		m.failf("left over: %+v, %d wait", u, len(m.waiting))
	}
}

func TestModelInOrder(t *testing.T) {
	for _, age := range []time.Duration{0, 5 * time.Millisecond, time.Hour} {
		runModel(t, Options{Name: "a test", Bytes: 100, Count: 5, Age: age}, nil)
	}
}

// TestModelShared: whoever is let in is the oldest of its client and level, and within its share.
// Nobody of a higher level could have come in, unless it had waited for long.
func TestModelShared(t *testing.T) {
	for _, even := range []bool{false, true} {
		o := Options{Name: "a test", Bytes: 40 << 10, Count: 9, Age: 10 * time.Millisecond,
			Share: &Share{Queue: 5, Linger: 2 * time.Millisecond, Even: even, EvenCount: 2,
				EvenBytes: 8 << 10}}
		runModel(t, o, func(m *model, in *visitor) {
			for _, v := range m.waiting {
				same := v.Client == in.Client && v.Level == in.Level
				if same && v.nth < in.nth {
					m.failf("visitor %d overtakes %d of its client", in.nth, v.nth)
				}
			}
			for _, v := range m.heads() {
				if v.Level > in.Level && v != in && m.at-in.at < m.g.opts.Age &&
					v.Client != in.Client && m.g.clients.all[v.Client].count == 0 {
					m.failf("visitor %d goes before %d of a higher level", in.nth, v.nth)
				}
			}
		})
	}
}

// TestClose: everybody who waits or comes is sent away, and who is inside can leave.
func TestClose(t *testing.T) {
	for _, share := range []*Share{nil, {Queue: 9}} {
		g := New(Options{Bytes: 10, Count: 1, Share: share})
		var in, out, late Ticket
		if !g.TryEnter(&in, Request{Bytes: 1}) {
			t.Fatal("no room")
		}
		ended := make(chan error, 1)
		go func() { ended <- g.Enter(context.Background(), &out, Request{Bytes: 1}) }()
		for g.Usage().Waiting == 0 {
			time.Sleep(time.Millisecond)
		}
		g.Close(errGone)
		g.Close(errs.Closed) // the first one stays
		if err := <-ended; err != errGone {
			t.Errorf("who waits is told %v", err)
		}
		if err := g.Enter(context.Background(), &late, Request{}); err != errGone {
			t.Errorf("who comes is told %v", err)
		}
		g.Leave(&in)
		if u := g.Usage(); u.Count != 0 || u.Bytes != 0 || u.Waiting != 0 {
			t.Errorf("left over: %+v", u)
		}
	}
	g := New(Options{Bytes: 10})
	g.Close(errGone)
	if err := g.Acquire(context.Background(), 1); err != errGone || g.TryAcquire(1) {
		t.Error(err)
	}
}
