package sim

import (
	"testing"

	"github.com/sluice-storage/sluice/fabric"
)

// lastWins writes 1 and then 2 to one byte, through one grant or two, with or without a message
// between, and tells what the memory holds in the end.
func lastWins(t *testing.T, seed uint64, twoGrants, message bool) byte {
	t.Helper()
	p := newPair(t, Options{Seed: seed, MaxDelay: 8})
	grant := func() fabric.Remote {
		rem, err := p.regs[1].Grant(p.ep[1], 0, 1, fabric.RemoteWrite)
		if err != nil {
			t.Fatal(err)
		}
		return rem
	}
	first := grant()
	second := first
	if twoGrants {
		second = grant()
	}
	if err := p.ep[1].PostRecv([]fabric.Recv{{Buf: make([]byte, 1)}}); err != nil {
		t.Fatal(err)
	}
	write := func(value byte, to fabric.Remote) fabric.WR {
		local := []fabric.Sge{{Buf: []byte{value}}}
		return fabric.WR{Op: fabric.OpWrite, Local: local, Remote: to}
	}
	chain := []fabric.WR{write(1, first), write(2, second)}
	if message {
		chain = []fabric.WR{chain[0], {Op: fabric.OpSend}, chain[1]}
	}
	if err := p.ep[0].Post(chain); err != nil {
		t.Fatal(err)
	}
	p.net.Idle()
	return p.mem[1][0]
}

func TestWritesOvertakeOnlyThroughAnotherGrant(t *testing.T) {
	overtaken := 0
	for seed := range uint64(40) {
		if lastWins(t, seed, false, false) != 2 {
			t.Fatalf("seed %d: overtaken within one grant", seed)
		}
		if lastWins(t, seed, true, true) != 2 {
			t.Fatalf("seed %d: overtaken across a message", seed)
		}
		if lastWins(t, seed, true, false) == 1 {
			overtaken++
		}
	}
	if overtaken == 0 || overtaken == 40 {
		t.Fatalf("%d of 40 seeds let a write overtake", overtaken)
	}
}

// TestBreakBeforePlacing cuts a connection between the start of Writes and their effect: those
// that were not placed leave no trace, and all complete.
func TestBreakBeforePlacing(t *testing.T) {
	partly := 0
	for seed := range uint64(30) {
		p := newPair(t, Options{Seed: seed, MaxDelay: 20})
		var wrs []fabric.WR
		for i := range 8 {
			rem, err := p.regs[1].Grant(p.ep[1], i, 1, fabric.RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			wrs = append(wrs, fabric.WR{
				Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Context: uint64(i), Remote: rem,
				Local: []fabric.Sge{{Buf: []byte{1}}},
			})
		}
		if err := p.ep[0].Post(wrs); err != nil {
			t.Fatal(err)
		}
		for range seed {
			p.net.Step()
		}
		p.net.Break(p.ep[0])
		var c [16]fabric.Completion
		if n := p.cq[0].Poll(c[:]); n != len(wrs) {
			t.Fatalf("seed %d: %d of %d completed", seed, n, len(wrs))
		}
		placed := 0
		for i := range wrs {
			if c[i].Context != uint64(i) {
				t.Fatalf("seed %d: completion %d is of request %d", seed, i, c[i].Context)
			}
			if c[i].Err == nil && p.mem[1][i] != 1 {
				t.Fatalf("seed %d: request %d succeeded and is not there", seed, i)
			}
			placed += int(p.mem[1][i])
		}
		if placed > 0 && placed < len(wrs) {
			partly++
		}
	}
	if partly == 0 {
		t.Fatal("no seed left some of the writes undone")
	}
}
