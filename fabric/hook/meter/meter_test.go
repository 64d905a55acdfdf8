package meter_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook/hooktest"
	"github.com/sluice-storage/sluice/fabric/hook/meter"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// model counts beside the meter what a random exchange did.
type model struct {
	t   *testing.T
	rng *rand.Rand
	a   *hooktest.End
	rem fabric.Remote
	ops map[fabric.Op]*meter.Op
}

func newModel(t *testing.T, seed uint64, a *hooktest.End) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 4)), a: a, ops: map[fabric.Op]*meter.Op{}}
	for op := fabric.OpSend; op <= fabric.OpRecv; op++ {
		m.ops[op] = &meter.Op{}
	}
	return m
}

// post posts one request, signalled or not, good or refused at the other side.
func (m *model) post() (completes bool) {
	op := []fabric.Op{fabric.OpWrite, fabric.OpRead}[m.rng.IntN(2)]
	size := m.rng.IntN(4096)
	wr := m.a.Move(op, m.rng.Uint64N(3), m.rem.Slice(0, uint64(size)))
	bad := m.rng.IntN(8) == 0 && size > 0
	if bad {
		wr.Remote.Key++
	}
	if m.rng.IntN(2) == 0 {
		wr.Flags = 0
	}
	m.a.Post(wr)
	o := m.ops[op]
	o.Posted++
	o.PostedBytes += uint64(size)
	switch {
	case bad:
		o.Completed++
		o.Failed[errs.Perm]++
	case wr.Flags != 0:
		o.Completed++
		o.Bytes += uint64(size)
	default:
		o.Silent++
		return false
	}
	return true
}

// same compares what both know.
func (m *model) same(s *meter.Snapshot) {
	m.t.Helper()
	for op, want := range m.ops {
		got := *s.Op(op)
		if got.Sizes.Total() != got.Posted || got.Times.Total() > got.Completed {
			m.t.Fatalf("op %d: histograms of %d sizes and %d times for %d posts and %d completions",
				op, got.Sizes.Total(), got.Times.Total(), got.Posted, got.Completed)
		}
		got.Sizes, got.Times = meter.Sizes{}, meter.Times{}
		if got != *want {
			m.t.Fatalf("op %d:\n got %+v\nwant %+v", op, got, *want)
		}
	}
}

// TestAgainstModel wants exact counts, whenever nothing is under way.
func TestAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	net := sim.New(sim.Options{Seed: seed, MaxDelay: 5})
	d := meter.New(net.Open())
	a, b := hooktest.Pair(t, d, net.Open(), "b")
	m := newModel(t, seed, a)
	m.rem = b.Grant(0, 4096)
	for range 30 {
		completions := 0
		for range m.rng.IntN(30) {
			if m.post() {
				completions++
			}
		}
		// The last one tells that the silent ones are over.
		last := a.Move(fabric.OpWrite, 99, m.rem.Slice(0, 1))
		last.Flags |= fabric.FlagFence
		a.Post(last)
		m.ops[fabric.OpWrite].Posted++
		m.ops[fabric.OpWrite].PostedBytes++
		m.ops[fabric.OpWrite].Completed++
		m.ops[fabric.OpWrite].Bytes++
		a.Next(completions + 1)
		a.Empty()
		m.same(d.Snapshot())
	}
	hooktest.Check(t, a.EP.Close())
	m.same(d.Snapshot()) // the numbers of closed endpoints stay
	if s := d.Snapshot(); s.Links.Open != 0 || s.Links.Dialled != 1 || s.Queues.Waits == 0 {
		t.Fatalf("links %+v, queues %+v", s.Links, s.Queues)
	}
}

// Receives, refusals and what a Close leaves behind.
func TestEnds(t *testing.T) {
	net := sim.New(sim.Options{})
	d := meter.New(net.Open())
	a, b := hooktest.Pair(t, d, net.Open(), "b")
	for i := range uint64(5) {
		a.Recv(i, 16)
	}
	b.Post(b.Send(1, 10), b.Send(2, 7))
	a.Next(2)
	wr := a.Send(1, 1)
	wr.Flags = 0xff
	_ = a.EP.Post([]fabric.WR{wr, wr})
	recv := d.Snapshot().Op(fabric.OpRecv)
	if recv.Posted != 5 || recv.PostedBytes != 80 || recv.Completed != 2 || recv.Bytes != 17 ||
		recv.Outstanding != 3 || recv.Times.Total() != 2 || recv.Sizes[5] != 5 {
		t.Fatalf("receives %+v", recv)
	}
	if n := d.Snapshot().Op(fabric.OpSend).Refused[errs.Invalid]; n != 2 {
		t.Fatalf("%d refused sends", n)
	}
	hooktest.Check(t, a.EP.Close())
	if n := d.Snapshot().Op(fabric.OpRecv).Outstanding; n != 0 {
		t.Fatalf("%d outstanding at a closed endpoint", n)
	}
	a.Next(3)
	recv = d.Snapshot().Op(fabric.OpRecv)
	if recv.Completed != 5 || recv.Failed[errs.Closed] != 3 || recv.Silent != 0 {
		t.Fatalf("receives after the close %+v", recv)
	}
}

func TestLinks(t *testing.T) {
	net := sim.New(sim.Options{})
	d := meter.New(net.Open())
	a := hooktest.NewEnd(t, d, fabric.CQOptions{})
	_, err := d.Connector().Dial(t.Context(), "nobody", a.Config())
	if err == nil {
		t.Fatal("dialled nobody")
	}
	l, err := d.Connector().Listen("here")
	hooktest.Check(t, err)
	peer := hooktest.NewEnd(t, net.Open(), fabric.CQOptions{})
	hooktest.Connect(t, peer, a, l)
	rem := a.Grant(0, 10)
	a.Grant(0, 10)
	a.Reg.Revoke(rem)
	extra, err := d.Register(make([]byte, 100))
	hooktest.Check(t, err)
	got := d.Snapshot().Links
	if got.Open != 1 || got.Accepted != 1 || got.DialErrors[errs.Disconnected] != 1 ||
		got.Grants != 2 || got.Revokes != 1 || got.Regions != 2 ||
		got.RegionBytes != hooktest.MemBytes+100 {
		t.Fatalf("%+v", got)
	}
	hooktest.Check(t, extra.Close())
	hooktest.Check(t, extra.Close())
	if got := d.Snapshot().Links; got.Regions != 1 || got.RegionBytes != hooktest.MemBytes {
		t.Fatalf("%+v", got)
	}
	each := d.Endpoints()
	if len(each) != 1 || each[0].Name != a.EP.Name() || each[0].Op(fabric.OpSend).Posted != 0 {
		t.Fatalf("endpoints %+v", each)
	}
}

// Many goroutines use many endpoints while somebody looks.
func TestConcurrent(t *testing.T) {
	net := sim.New(sim.Options{})
	d, far := meter.New(net.Open()), net.Open()
	const ends, posts = 4, 200
	var wg sync.WaitGroup
	for range ends {
		a := hooktest.NewEnd(t, d, fabric.CQOptions{})
		b := hooktest.NewEnd(t, far, fabric.CQOptions{})
		l, err := far.Connector().Listen("")
		hooktest.Check(t, err)
		hooktest.Connect(t, a, b, l)
		rem := b.Grant(0, 100)
		wg.Go(func() {
			for range posts {
				a.Post(a.Move(fabric.OpWrite, 1, rem))
				a.Next(1)
			}
		})
	}
	for range 20 {
		w := d.Snapshot().Op(fabric.OpWrite)
		if w.Completed+w.Outstanding > w.Posted {
			t.Errorf("%d completed and %d outstanding of %d", w.Completed, w.Outstanding, w.Posted)
		}
		time.Sleep(100 * time.Microsecond)
	}
	wg.Wait()
	w := d.Snapshot().Op(fabric.OpWrite)
	if w.Posted != ends*posts || w.Completed != w.Posted || w.Bytes != 100*w.Posted ||
		w.Times.Total() != w.Posted {
		t.Fatalf("%+v", w)
	}
}

func TestText(t *testing.T) {
	net := sim.New(sim.Options{})
	d := meter.New(net.Open())
	a, b := hooktest.Pair(t, d, net.Open(), "b")
	rem := b.Grant(0, 4096)
	a.Post(a.Move(fabric.OpWrite, 1, rem))
	rem.Key++
	a.Post(a.Move(fabric.OpRead, 1, rem))
	a.Next(2)
	text := d.Snapshot().String()
	for _, part := range []string{
		"sim, ", "\nwrite             1          1", "\nread failed: 1 not permitted;\n",
		"\nqueues: 1 open, 0 polls (0 empty), ", "\nlinks: 1 open, 1 dialled, 0 accepted; 1 regions",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
	if strings.Contains(text, "\nsend") {
		t.Errorf("an operation that was never used is in:\n%s", text)
	}
}
