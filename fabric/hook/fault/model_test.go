package fault_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook/fault"
	"github.com/sluice-storage/sluice/fabric/hook/hooktest"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// TestExactlyOnce posts under random faults and counts: whatever was taken completes exactly once,
// and whatever was refused never.
func TestExactlyOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	net := sim.New(sim.Options{Seed: seed, MaxDelay: 6})
	d := fault.New(net.Open(), fault.Options{Seed: seed, Rules: []fault.Rule{
		{Ops: fault.Post, OneIn: 10, Kind: errs.Again},
		{Ops: fault.Post | fault.Recv, OneIn: 40, Break: true},
		{Ops: fault.Post | fault.Recv, OneIn: 40, Break: true, Early: true},
	}})
	a := hooktest.NewEnd(t, d, fabric.CQOptions{})
	b := hooktest.NewEnd(t, net.Open(), fabric.CQOptions{})
	l, err := b.Dom.Connector().Listen("b")
	hooktest.Check(t, err)
	rng := rand.New(rand.NewPCG(seed, 9))
	for range 60 {
		hooktest.Connect(t, a, b, l)
		rem := b.Grant(0, 64)
		taken := map[uint64]bool{}
		for i := range uint64(40) {
			var err error
			if rng.IntN(4) == 0 {
				err = a.EP.PostRecv([]fabric.Recv{{Context: i, Reg: a.Reg, Buf: a.Mem[:8]}})
			} else {
				op := []fabric.Op{fabric.OpWrite, fabric.OpRead}[rng.IntN(2)]
				err = a.EP.Post([]fabric.WR{a.Move(op, i, rem)})
			}
			if err == nil {
				taken[i] = true
			} else if k := errs.KindOf(err); k != errs.Again && k != errs.Disconnected {
				t.Fatal(err)
			}
		}
		hooktest.Check(t, a.EP.Close())
		for _, c := range a.Next(len(taken)) {
			if !taken[c.Context] {
				t.Fatalf("completed twice or never posted: %+v", c)
			}
			delete(taken, c.Context)
		}
		a.Empty()
		hooktest.Check(t, b.EP.Close())
	}
	if d.Fired() < 20 {
		t.Fatalf("only %d faults in 60 connections", d.Fired())
	}
}
