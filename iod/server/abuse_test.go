package server_test

import (
	"bytes"
	"context"
	mrand "math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
)

// TestRefusedCapabilitiesAreCounted shows one wrong in one respect after the other.
func TestRefusedCapabilitiesAreCounted(t *testing.T) {
	g := newRig(t)
	good := capability.Capability{File: 1, Gen: 1, Rights: capability.Write, Session: 9, Server: 1,
		Layout: 3, Expiry: g.now().Add(time.Minute)}
	for _, c := range []struct {
		name   string
		count  string
		want   errs.Kind
		change func(c *capability.Capability, tg *iod.Target)
	}{
		{"right", "", errs.OK, func(*capability.Capability, *iod.Target) {}},
		{"forged", "capabilities_forged", errs.Forged,
			func(_ *capability.Capability, tg *iod.Target) { tg.Cap[2]++ }},
		{"of another object", "capabilities_other_object", errs.Perm,
			func(_ *capability.Capability, tg *iod.Target) { tg.Object.File++ }},
		{"of another server", "capabilities_other_server", errs.Perm,
			func(c *capability.Capability, _ *iod.Target) { c.Server = 2 }},
		{"of another session", "capabilities_other_session", errs.Perm,
			func(_ *capability.Capability, tg *iod.Target) { tg.Stamp.Session++ }},
		{"without the right", "capabilities_not_granted", errs.Perm,
			func(c *capability.Capability, _ *iod.Target) { c.Rights = capability.Read }},
		{"of another generation", "capabilities_other_generation", errs.Stale,
			func(_ *capability.Capability, tg *iod.Target) { tg.Object.Gen++; tg.Stamp.Gen++ }},
		{"of another layout", "capabilities_other_layout", errs.Stale,
			func(_ *capability.Capability, tg *iod.Target) { tg.Layout++ }},
		{"expired", "capabilities_expired", errs.Expired,
			func(c *capability.Capability, _ *iod.Target) { c.Expiry = g.now().Add(-time.Second) }},
		{"for too long", "capabilities_too_long", errs.Perm,
			func(c *capability.Capability, _ *iod.Target) {
				c.Expiry, c.TTL = g.now().Add(time.Hour), time.Hour
			}},
		{"by another clock", "capabilities_other_clock", errs.Expired,
			func(c *capability.Capability, _ *iod.Target) { c.Expiry = g.now().Add(time.Hour) }},
	} {
		says, tg := good, g.sign(good)
		c.change(&says, &tg)
		if signed := g.sign(says); says != good {
			tg.Cap = signed.Cap
		}
		before := g.counts()[c.count]
		p := make([]byte, 4)
		args := iod.Args{Access: seg.Contig(0, 4), Sums: sumsOf(p)}
		_, err := g.ask(iod.OpWrite, tg, args, view(p), nil)
		if errs.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if n := g.counts()[c.count]; c.count != "" && n != before+1 {
			t.Errorf("%s: %s went from %d to %d", c.name, c.count, before, n)
		}
	}
}

// TestWrongSumsChangeNothing damages data on its way, in every mode.
func TestWrongSumsChangeNothing(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	good, bad := bytes.Repeat([]byte{1}, 400<<10), bytes.Repeat([]byte{2}, 400<<10)
	for mode, name := range map[iod.Mode]string{iod.Cached: "cached", iod.Direct: "direct"} {
		t.Run(name, func(t *testing.T) {
			tg.How.Mode = mode
			before := g.counts()["corrupt_writes"]
			write(t, g.remote, tg, 0, good)
			sums := sumsOf(bad)
			sums[0]++ // the first: a direct write may have stored chunks before a later one
			_, err := g.ask(iod.OpWrite, tg, iod.Args{Access: seg.Contig(0, int64(len(bad))), Sums: sums},
				view(bad), nil)
			if errs.KindOf(err) != errs.Corrupt {
				t.Errorf("wrong sums: %v", err)
			}
			got := read(t, g.remote, tg, 0, iod.SumChunk)
			if !bytes.Equal(got, good[:iod.SumChunk]) {
				t.Error("damaged data was published")
			}
			if n := g.counts()["corrupt_writes"] - before; n != 1 {
				t.Errorf("%d counted", n)
			}
		})
	}
	g.awaitIdle(t)
}

func TestDiskFaultsAreTold(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	fail := func(k errs.Kind) error { return errs.New(k, "disk", "", nil) }
	p := make([]byte, 256<<10)
	for _, c := range []struct {
		ops  fault.Op
		kind errs.Kind
		call func() error
	}{
		{fault.Read, errs.Corrupt, func() error {
			_, err := g.ask(iod.OpRead, tg, iod.Args{Access: seg.Contig(0, 256<<10)}, nil, view(p))
			return err
		}},
		{fault.Read, errs.IO, func() error { // elsewhere: the first is cached now
			_, err := g.ask(iod.OpRead, tg, iod.Args{Access: seg.Contig(512<<10, 256<<10)}, nil, view(p))
			return err
		}},
		{fault.Write, errs.NoSpace, func() error {
			_, err := g.ask(iod.OpWrite, tg, iod.Args{Access: seg.Contig(0, 256<<10), Sums: sumsOf(p)},
				view(p), nil)
			return err
		}},
		{fault.Sync, errs.IO, func() error {
			_, err := g.ask(iod.OpSync, tg, iod.Args{}, nil, nil)
			return err
		}},
		{fault.Stat, errs.IO, func() error {
			_, err := g.ask(iod.OpStat, tg, iod.Args{}, nil, nil)
			return err
		}},
	} {
		remove := g.disk.Inject(fault.Rule{Ops: c.ops, Err: fail(c.kind)})
		if err := c.call(); errs.KindOf(err) != c.kind {
			t.Errorf("op %d: %v, want %v", c.ops, err, c.kind)
		}
		remove()
		if err := c.call(); err != nil {
			t.Errorf("op %d when the disk is well again: %v", c.ops, err)
		}
	}
	g.awaitIdle(t)
}

// TestClientsThatVanishLeaveNothing has clients whose connection ends at any moment of a large
// transfer: writes that were not complete have changed nothing, and all memory comes back.
func TestClientsThatVanishLeaveNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := mrand.New(mrand.NewPCG(seed, 1))
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	write(t, g.remote, tg, 0, make([]byte, 2<<20))
	for round := range 24 {
		conn, vanish := g.dial()
		p := bytes.Repeat([]byte{byte(round + 1)}, 2<<20)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a := iod.Args{Access: seg.Contig(0, int64(len(p))), Sums: sumsOf(p)}
			if round%2 == 0 {
				_, _ = ask(context.Background(), conn, iod.OpWrite, tg, a, view(p), nil)
				return
			}
			tg := tg
			tg.How.Mode = iod.Mode(round / 2 % 2)
			_, _ = ask(context.Background(), conn, iod.OpRead, tg, a, nil, view(p))
		}()
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
		vanish()
		<-ended
		got := read(t, g.remote, tg, 0, 2<<20)
		if !bytes.Equal(got, bytes.Repeat(got[:1], len(got))) {
			t.Fatalf("round %d: half of a write is there", round)
		}
	}
	g.awaitIdle(t)
}
