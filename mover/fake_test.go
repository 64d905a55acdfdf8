package mover

import (
	"errors"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// fakeDomain and fakeEndpoint take requests and never do anything: the test says what completes.
type fakeDomain struct {
	fabric.Domain
	caps fabric.Caps
}

func (d *fakeDomain) Caps() fabric.Caps { return d.caps }

type fakeEndpoint struct {
	fabric.Endpoint
	posted [][]fabric.WR
	refuse error  // what the next Posts say
	before func() // called once, by the next Post, before it answers
	closed bool
}

func (e *fakeEndpoint) Post(wrs []fabric.WR) error {
	refuse, before := e.refuse, e.before
	if e.before = nil; before != nil {
		before()
	}
	if refuse != nil {
		return refuse
	}
	e.posted = append(e.posted, slices.Clone(wrs))
	return nil
}

func (e *fakeEndpoint) Peer() fabric.Peer { return fabric.Peer{} }
func (e *fakeEndpoint) Name() string      { return "fake" }
func (e *fakeEndpoint) Close() error      { e.closed = true; return nil }

func newFake(t *testing.T, opts Options) (*Mover, *fakeEndpoint) {
	t.Helper()
	e := &fakeEndpoint{}
	opts.Domain = &fakeDomain{caps: fabric.Caps{
		AnyMemory: true, MaxSge: 4, MaxTransfer: 1 << 20, MaxMessage: 1 << 20, QueueDepth: 64,
	}}
	opts.Endpoint = e
	m, err := New(opts)
	fatal(t, err)
	return m, e
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plan is a plan of count segments of 8 bytes.
func plan(t *testing.T, m *Mover, dir Direction, count int) *Plan {
	t.Helper()
	p, err := m.NewPlan(dir, []fabric.Sge{{Buf: make([]byte, 8*count)}},
		slices.Repeat([]fabric.Remote{{Len: 8}}, count))
	fatal(t, err)
	return p
}

// completes shows a completion of a posted request.
func (e *fakeEndpoint) completes(t *testing.T, m *Mover, wr fabric.WR, err error) {
	t.Helper()
	if !m.Completed(&fabric.Completion{Op: wr.Op, Context: wr.Context, EP: e, Err: err}) {
		t.Fatal("the mover does not know its own request")
	}
}

func kindErr(kind errs.Kind) error { return errs.New(kind, "fake", "", nil) }

// over tells whether a plan's move is over, and takes the token.
func over(p *Plan) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

func TestRefusalIsNamedWhateverComesFirst(t *testing.T) {
	m, e := newFake(t, Options{SendDepth: 8})
	p := plan(t, m, Get, 3)
	fatal(t, m.Start(p, Run{}))
	chain := e.posted[0]
	e.completes(t, m, chain[2], kindErr(errs.Disconnected))
	e.completes(t, m, chain[1], kindErr(errs.Perm))
	if over(p) {
		t.Fatal("one Read is still under way")
	}
	e.completes(t, m, chain[0], kindErr(errs.Disconnected))
	var piece *PieceError
	if err := p.Err(); !over(p) || errs.KindOf(err) != errs.Perm ||
		!errors.As(err, &piece) || piece.Segment != 1 {
		t.Fatal(err)
	}
}

func TestNothingIsPostedAfterAFailure(t *testing.T) {
	for _, dir := range []Direction{Put, Get} {
		m, e := newFake(t, Options{SendDepth: 4})
		p, behind := plan(t, m, dir, 9), plan(t, m, dir, 2)
		fatal(t, m.Start(p, Run{Notice: Notice{How: Immediate}}))
		fatal(t, m.Start(behind, Run{}))
		if len(e.posted) != 1 || len(e.posted[0]) != 4 {
			t.Fatal(e.posted)
		}
		e.completes(t, m, e.posted[0][1], kindErr(errs.Perm))
		if over(p) || over(behind) {
			t.Fatal("requests are under way")
		}
		for i, wr := range e.posted[0] {
			if i != 1 && wr.Flags&fabric.FlagSignaled != 0 {
				e.completes(t, m, wr, nil)
			}
		}
		if !over(p) || errs.KindOf(p.Err()) != errs.Perm {
			t.Fatal(p.Err())
		}
		if n := len(e.posted); n != 2 || len(e.posted[1]) != 2 {
			t.Fatalf("%d chains; only the move behind may be posted", n)
		}
		for _, wr := range e.posted[1] {
			if wr.Flags&fabric.FlagSignaled != 0 {
				e.completes(t, m, wr, nil)
			}
		}
		if !over(behind) || behind.Err() != nil || m.free != 4 {
			t.Fatal(behind.Err(), m.free)
		}
	}
}

// TestLastOfOthersWhileRefused: the last request of others completes after Post has found the queue
// full, and before anybody knows that something waits for it.
func TestLastOfOthersWhileRefused(t *testing.T) {
	m, e := newFake(t, Options{SendDepth: 8})
	e.refuse = kindErr(errs.Again)
	e.before = func() {
		e.refuse = nil
		if m.Completed(&fabric.Completion{Op: fabric.OpRecv, EP: e}) {
			t.Error("the mover takes what is not its own")
		}
	}
	fatal(t, m.Start(plan(t, m, Put, 2), Run{}))
	if len(e.posted) != 1 {
		t.Fatalf("%d chains are posted; nothing comes any more that would", len(e.posted))
	}
}

// TestOthersFillTheQueue has Post refuse for lack of room that others hold: the chain goes out when
// a completion of theirs is shown.
func TestOthersFillTheQueue(t *testing.T) {
	m, e := newFake(t, Options{SendDepth: 4, Mark: 3})
	p := plan(t, m, Put, 2)
	e.refuse = kindErr(errs.Again)
	fatal(t, m.Start(p, Run{}))
	theirs := fabric.Completion{Op: fabric.OpSend, Context: 2<<48 | 7, EP: e}
	if m.Completed(&theirs) || len(e.posted) != 0 {
		t.Fatal("still no room")
	}
	e.refuse = nil
	if m.Completed(&theirs) {
		t.Fatal("that was not the mover's")
	}
	if len(e.posted) != 1 {
		t.Fatal("there is room now")
	}
	e.completes(t, m, e.posted[0][1], nil)
	if !over(p) || p.Err() != nil {
		t.Fatal(p.Err())
	}
	other := fabric.Completion{Op: fabric.OpWrite, Context: e.posted[0][1].Context, EP: nil}
	if m.Completed(&other) {
		t.Fatal("that was another endpoint's")
	}
}

func TestCancelWaitsForWhatIsUnderWay(t *testing.T) {
	m, e := newFake(t, Options{SendDepth: 4})
	p, waits := plan(t, m, Put, 9), plan(t, m, Put, 1)
	fatal(t, m.Start(p, Run{}))
	fatal(t, m.Start(waits, Run{}))
	m.Cancel(waits)
	if !over(waits) || errs.KindOf(waits.Err()) != errs.Canceled {
		t.Fatal("nothing of it was posted:", waits.Err())
	}
	m.Cancel(p)
	if over(p) {
		t.Fatal("four requests are under way")
	}
	if err := m.Start(p, Run{}); errs.KindOf(err) != errs.Busy {
		t.Fatal(err)
	}
	if err := p.Reset(Put, nil, nil); errs.KindOf(err) != errs.Busy {
		t.Fatal(err)
	}
	e.completes(t, m, e.posted[0][3], nil)
	if !over(p) || errs.KindOf(p.Err()) != errs.Canceled || len(e.posted) != 1 {
		t.Fatal(p.Err())
	}
	fatal(t, m.Start(p, Run{}))
	m.Cancel(p)
	fatal(t, m.Close())
	if !e.closed || !over(p) || errs.KindOf(p.Err()) != errs.Canceled {
		t.Fatal(p.Err())
	}
	e.completes(t, m, e.posted[1][3], nil) // comes too late, and harms nobody
	if err := m.Start(p, Run{}); errs.KindOf(err) != errs.Closed {
		t.Fatal(err)
	}
}

func TestCancelOfWhatIsPostedChangesNothing(t *testing.T) {
	m, e := newFake(t, Options{SendDepth: 4})
	p := plan(t, m, Put, 4)
	fatal(t, m.Start(p, Run{}))
	m.Cancel(p)
	e.completes(t, m, e.posted[0][3], nil)
	if !over(p) || p.Err() != nil {
		t.Fatal(p.Err())
	}
	m.Cancel(p) // nothing is under way
	if over(p) {
		t.Fatal("a token from nowhere")
	}
}

func TestTooManyMoves(t *testing.T) {
	m, e := newFake(t, Options{SendDepth: 4, Moves: 2})
	var plans []*Plan
	for range 3 {
		plans = append(plans, plan(t, m, Put, 1))
	}
	fatal(t, m.Start(plans[0], Run{}))
	fatal(t, m.Start(plans[1], Run{}))
	if err := m.Start(plans[2], Run{}); errs.KindOf(err) != errs.Again {
		t.Fatal(err)
	}
	e.completes(t, m, e.posted[0][0], nil)
	fatal(t, m.Start(plans[2], Run{}))
	if e.posted[0][0].Context == e.posted[2][0].Context {
		t.Fatal("two moves look the same")
	}
}

// TestDoneStartsAgain has the callback start the next move of the same plan.
func TestDoneStartsAgain(t *testing.T) {
	m, e := newFake(t, Options{SendDepth: 4})
	p := plan(t, m, Put, 1)
	ends := 0
	var run Run
	run.Done = func(err error) {
		fatal(t, err)
		if ends++; ends < 3 {
			fatal(t, m.Start(p, run))
		}
	}
	fatal(t, m.Start(p, run))
	for i := range 3 {
		e.completes(t, m, e.posted[i][0], nil)
	}
	if ends != 3 || len(e.posted) != 3 || !over(p) {
		t.Fatal(ends, len(e.posted))
	}
}
