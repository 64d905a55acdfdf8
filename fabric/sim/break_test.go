package sim

import (
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// TestBreaksCompleteEverythingOnce lets connections break at random moments, with refusals that do
// the same, and counts.
func TestBreaksCompleteEverythingOnce(t *testing.T) {
	kinds := map[errs.Kind]int{}
	for seed := range uint64(60) {
		p := newPair(t, Options{
			Seed: seed, MaxDelay: 12, BreakOneIn: 60, RefusalEnds: seed%2 == 0,
		})
		want := [2]map[uint64]int{{}, {}}
		for side := range 2 {
			postRandom(t, p, side, want[side])
		}
		p.net.Idle()
		for side := range 2 {
			if err := p.ep[side].Close(); err != nil {
				t.Fatal(err)
			}
			var dst [256]fabric.Completion
			for _, c := range dst[:p.cq[side].Poll(dst[:])] {
				want[side][c.Context]--
				kinds[c.ErrKind()]++
			}
			for context, left := range want[side] {
				if left != 0 {
					t.Fatalf("seed %d, side %d: %d completions of %d are missing",
						seed, side, left, context)
				}
			}
		}
	}
	for _, kind := range []errs.Kind{errs.OK, errs.Perm, errs.Closed, errs.Disconnected} {
		if kinds[kind] == 0 {
			t.Errorf("nothing ended with %v: %v", kind, kinds)
		}
	}
}

// postRandom posts receives and requests, all signalled, of which one in twenty must be refused.
func postRandom(t *testing.T, p *pair, side int, want map[uint64]int) {
	t.Helper()
	const both = fabric.RemoteRead | fabric.RemoteWrite
	rem, err := p.regs[1-side].Grant(p.ep[1-side], 2048, 64, both)
	if errs.KindOf(err) == errs.Disconnected {
		return // it broke already
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(30) {
		recv := fabric.Recv{Context: 1000 + i, Buf: make([]byte, 64)}
		if p.ep[side].PostRecv([]fabric.Recv{recv}) == nil {
			want[1000+i]++
		}
	}
	for i := range uint64(30) {
		op := []fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpSend, fabric.OpWriteImm}[i%4]
		wr := fabric.WR{Op: op, Flags: fabric.FlagSignaled, Context: i, Remote: rem}
		wr.Local = []fabric.Sge{{Buf: p.mem[side][:64]}}
		if i%20 == 19 {
			wr.Remote.Key++
		}
		if p.ep[side].Post([]fabric.WR{wr}) == nil {
			want[i]++
		}
	}
}
