package server_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/stripe/memstore"
)

// numbered writes bytes with a number, as somebody does who does not know whether it has arrived.
func (g *rig) numbered(tg iod.Target, seq uint32, off int64, p []byte) (iod.Mark, error) {
	g.t.Helper()
	tg.Stamp.Slot, tg.Stamp.Seq = 3, seq
	body, err := g.ask(iod.OpWrite, tg, iod.Args{Access: seg.Contig(off, int64(len(p))),
		Sums: sumsOf(p)}, view(p), nil)
	if err != nil {
		return iod.Mark{}, err
	}
	m, err := iod.DecodeMark(body)
	g.check(err)
	return m, nil
}

func sumsOf(p []byte) []uint32 {
	var s iod.Summing
	s.Add(p)
	return s.Sums()
}

// repeats sends a write, another one over it, and the first one again, to servers that are started
// anew in between or not. It tells whether the first one was applied twice.
func repeats(t *testing.T, mode iod.Mode, again bool) (twice bool) {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	plan := func(s *setup) { s.store = store }
	g := newRig(t, plan)
	tg := g.target(1, capability.Read|capability.Write)
	tg.How.Mode = mode
	old, young := bytes.Repeat([]byte{1}, 300<<10), bytes.Repeat([]byte{2}, 300<<10)
	for i, p := range [][]byte{old, young, old} {
		if i == 2 && again {
			g.close()
			g = newRig(t, plan)
		}
		if _, err := g.numbered(tg, []uint32{1, 2, 1}[i], 0, p); err != nil {
			t.Fatal(err)
		}
	}
	got := read(t, g.remote, tg, 0, int64(len(old)))
	if n := g.counts()["repeated"]; n != 1 {
		t.Errorf("%d repeats counted", n)
	}
	g.close()
	return !bytes.Equal(got, young)
}

func TestARepeatedWriteIsAppliedOnce(t *testing.T) {
	for _, mode := range []iod.Mode{iod.Cached, iod.Direct, iod.DirectReads} {
		for _, again := range []bool{false, true} {
			if repeats(t, mode, again) {
				t.Errorf("mode %d, server started again: %v: an old write came back", mode, again)
			}
		}
	}
}

// TestARepeatedPunchIsAppliedOnce: a write in between stays.
func TestARepeatedPunchIsAppliedOnce(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	data := bytes.Repeat([]byte{7}, 64<<10)
	punch := func(seq uint32) {
		tg := tg
		tg.Stamp.Slot, tg.Stamp.Seq = 3, seq
		_, err := g.ask(iod.OpPunch, tg, iod.Args{Len: 64 << 10}, nil, nil)
		g.check(err)
	}
	punch(1)
	if _, err := g.numbered(tg, 2, 0, data); err != nil {
		t.Fatal(err)
	}
	punch(1)
	if got := read(t, g.remote, tg, 0, 64<<10); !bytes.Equal(got, data) {
		t.Fatal("a punch was carried out twice")
	}
}

// TestARequestDoesNotRunBesideItself sends a write again while it waits for the disk.
func TestARequestDoesNotRunBesideItself(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	open := make(chan struct{})
	remove := g.disk.Inject(fault.Rule{Ops: fault.Write, Gate: open})
	first := make(chan error)
	go func() {
		_, err := g.numbered(tg, 1, 0, make([]byte, 4096))
		first <- err
	}()
	for g.disk.Calls(fault.Write) == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := g.numbered(tg, 1, 0, make([]byte, 4096)); errs.KindOf(err) != errs.Again {
		t.Errorf("the same request twice at once: %v", err)
	}
	close(open)
	if err := <-first; err != nil {
		t.Error(err)
	}
	remove()
	if _, err := g.numbered(tg, 2, 0, make([]byte, 4096)); err != nil {
		t.Errorf("the slot is busy for ever: %v", err)
	}
	if n := g.counts()["busy_slots"]; n != 1 {
		t.Errorf("%d counted", n)
	}
}

// TestVerifierTellsOfARestart: of one that loses what the cache has acknowledged, and of no other.
func TestVerifierTellsOfARestart(t *testing.T) {
	for _, c := range []struct {
		name   string
		back   bool
		differ bool
	}{
		{"through", false, false},
		{"back", true, true},
	} {
		store, err := memstore.New(memstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var marks [2]iod.Mark
		for i := range marks {
			g := newRig(t, func(s *setup) { s.store = store }, func(s *setup) {
				if c.back {
					writesBack(s)
				}
			})
			tg := g.target(1, capability.Write)
			m, err := g.numbered(tg, uint32(i+1), 0, make([]byte, 100))
			g.check(err)
			body, err := g.ask(iod.OpSync, tg, iod.Args{}, nil, nil)
			g.check(err)
			marks[i], err = iod.DecodeMark(body)
			g.check(err)
			if marks[i] != m {
				t.Errorf("%s: %v and %v from one server", c.name, m, marks[i])
			}
			g.close()
		}
		if (marks[0].Verifier != marks[1].Verifier) != c.differ {
			t.Errorf("%s: verifiers %x and %x", c.name, marks[0].Verifier, marks[1].Verifier)
		}
		store.Close()
	}
}

// TestFencedGenerationIsNotReadFromTheCache: the store is not asked for what is cached.
func TestFencedGenerationIsNotReadFromTheCache(t *testing.T) {
	g := newRig(t)
	old := g.target(1, capability.Read|capability.Write)
	write(t, g.remote, old, 0, make([]byte, 64<<10))
	read(t, g.remote, old, 0, 64<<10)
	g.check(g.remote.Fence(t.Context(), g.targetGen(1, 2, capability.Manage)))
	_, err := g.ask(iod.OpRead, old, iod.Args{Access: seg.Contig(0, 4096)}, nil,
		view(make([]byte, 4096)))
	if errs.KindOf(err) != errs.Fenced {
		t.Errorf("read from the cache, behind a fence: %v", err)
	}
}
