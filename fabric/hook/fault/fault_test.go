package fault_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook/fault"
	"github.com/sluice-storage/sluice/fabric/hook/hooktest"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// pair is two connected ends, a's domain with rules, over each provider.
func pair(t *testing.T, run func(t *testing.T, d *fault.Domain, a, b *hooktest.End)) {
	t.Run("sim", func(t *testing.T) {
		net := sim.New(sim.Options{Seed: 3, MaxDelay: 4})
		d := fault.New(net.Open(), fault.Options{})
		a, b := hooktest.Pair(t, d, net.Open(), "b")
		run(t, d, a, b)
	})
	t.Run("tcp", func(t *testing.T) {
		d := fault.New(openTCP(t, nil), fault.Options{})
		a, b := hooktest.Pair(t, d, openTCP(t, nil), "127.0.0.1:0")
		run(t, d, a, b)
	})
}

func wantKind(t *testing.T, err error, want errs.Kind) {
	t.Helper()
	if errs.KindOf(err) != want {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// dead checks that a connection broke: everything completes once, with success or Disconnected, and
// both ends say so, until they are closed.
func dead(t *testing.T, a, b *hooktest.End, posted, recvs int) {
	t.Helper()
	all := a.Next(posted + recvs)
	seen := map[string]int{}
	for _, c := range all {
		if c.Err != nil && c.ErrKind() != errs.Disconnected || c.EP != a.EP {
			t.Fatalf("completion %+v", c)
		}
		if c.Op == fabric.OpRecv && c.Err == nil {
			t.Fatalf("nobody sent for %+v", c)
		}
		seen[fmt.Sprint(c.Op, c.Context)]++
	}
	if len(seen) != posted+recvs {
		t.Fatalf("%d different completions of %d", len(seen), posted+recvs)
	}
	a.Empty()
	wantKind(t, a.EP.Post(nil), errs.Disconnected)
	wantKind(t, a.EP.PostRecv(nil), errs.Disconnected)
	_, err := a.Reg.Grant(a.EP, 0, 1, fabric.RemoteRead)
	wantKind(t, err, errs.Disconnected)
	if c := b.Next(1)[0]; c.ErrKind() != errs.Disconnected { // its receive
		t.Fatalf("the peer's %+v", c)
	}
	hooktest.Check(t, a.EP.Close())
	wantKind(t, a.EP.Post(nil), errs.Closed)
	a.Empty()
}

func TestBreakAfterPosts(t *testing.T) {
	pair(t, func(t *testing.T, d *fault.Domain, a, b *hooktest.End) {
		d.Inject(fault.Rule{Ops: fault.Write, Skip: 9, Count: 1, Break: true})
		a.Recv(1, 8)
		b.Recv(1, 8)
		rem := b.Grant(0, 4096)
		posted := 0
		for i := range uint64(100) {
			if a.EP.Post([]fabric.WR{a.Move(fabric.OpWrite, i, rem)}) != nil {
				break
			}
			posted++
		}
		if posted != 10 || d.Fired() != 1 {
			t.Fatalf("%d writes were posted, %d rules fired", posted, d.Fired())
		}
		dead(t, a, b, posted, 1)
	})
}

func TestBreakAfterBytes(t *testing.T) {
	pair(t, func(t *testing.T, d *fault.Domain, a, b *hooktest.End) {
		d.Inject(fault.Rule{Ops: fault.Write | fault.Read, After: 10000, Break: true, Early: true})
		a.Recv(1, 8)
		b.Recv(1, 8)
		rem := b.Grant(0, 4096)
		posted := 0
		var err error
		for i := range uint64(100) {
			op := []fabric.Op{fabric.OpWrite, fabric.OpRead}[i%2]
			if err = a.EP.Post([]fabric.WR{a.Move(op, i, rem)}); err != nil {
				break
			}
			posted++
		}
		wantKind(t, err, errs.Disconnected)
		if posted != 2 { // the third would pass 10000 bytes
			t.Fatalf("%d requests were posted", posted)
		}
		dead(t, a, b, posted, 1)
	})
}

// One in n: the same seed breaks at the same post.
func TestBreakAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	run := func() (posts int) {
		net := sim.New(sim.Options{})
		d := fault.New(net.Open(), fault.Options{
			Seed: seed, Rules: []fault.Rule{{Ops: fault.Post, OneIn: 50, Break: true}},
		})
		a, b := hooktest.Pair(t, d, net.Open(), "b")
		rem := b.Grant(0, 8)
		for ; a.EP.Post([]fabric.WR{a.Move(fabric.OpWrite, 1, rem)}) == nil; posts++ {
			a.Next(1)
		}
		return posts
	}
	first := run()
	if second := run(); first != second {
		t.Fatalf("broke after %d posts, then after %d", first, second)
	}
}

func TestBreakAtOnce(t *testing.T) {
	pair(t, func(t *testing.T, d *fault.Domain, a, b *hooktest.End) {
		for i := range uint64(5) {
			a.Recv(i, 8)
		}
		b.Recv(1, 8)
		if n := d.Break("no such name"); n != 0 {
			t.Fatalf("%d connections of no such name broke", n)
		}
		if n := d.Break(a.EP.Name()); n != 1 {
			t.Fatalf("%d connections broke", n)
		}
		if n := d.Break(""); n != 0 {
			t.Fatalf("%d connections broke twice", n)
		}
		dead(t, a, b, 0, 5)
	})
}

// A rule with a name leaves others alone.
func TestNames(t *testing.T) {
	net := sim.New(sim.Options{})
	d := fault.New(net.Open(), fault.Options{})
	one, _ := hooktest.Pair(t, d, net.Open(), "one")
	two := hooktest.NewEnd(t, d, fabric.CQOptions{})
	peer := hooktest.NewEnd(t, net.Open(), fabric.CQOptions{})
	l, err := peer.Dom.Connector().Listen("two")
	hooktest.Check(t, err)
	hooktest.Connect(t, two, peer, l)
	d.Inject(fault.Rule{Name: "->two", Ops: fault.Recv, Break: true})
	one.Recv(1, 8)
	two.Recv(1, 8)
	hooktest.Check(t, one.EP.Post(nil))
	wantKind(t, two.EP.Post(nil), errs.Disconnected)
}

func TestDialAndAcceptRefused(t *testing.T) {
	net := sim.New(sim.Options{})
	for _, kind := range []errs.Kind{
		errs.Disconnected, errs.Perm, errs.Again, errs.Version, errs.TimedOut, errs.NoMemory,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			near, far := fault.New(net.Open(), fault.Options{}), fault.New(net.Open(), fault.Options{})
			a := hooktest.NewEnd(t, near, fabric.CQOptions{})
			b := hooktest.NewEnd(t, far, fabric.CQOptions{})
			l, err := far.Connector().Listen("")
			hooktest.Check(t, err)
			near.Inject(fault.Rule{Ops: fault.Dial, Name: l.Addr().String(), Count: 2, Kind: kind})
			for range 2 {
				_, err := near.Connector().Dial(t.Context(), l.Addr().String(), a.Config())
				wantKind(t, err, kind)
			}
			far.Inject(fault.Rule{Ops: fault.Accept, Count: 1, Kind: kind})
			done := make(chan error, 1)
			go func() {
				_, err := l.Accept(context.Background(),
					func(fabric.Peer) (fabric.EndpointConfig, error) { return b.Config(), nil })
				done <- err
			}()
			_, err = near.Connector().Dial(t.Context(), l.Addr().String(), a.Config())
			wantKind(t, err, fabric.RefusalKind(errs.New(kind, "", "", nil)))
			wantKind(t, <-done, kind)
			hooktest.Connect(t, a, b, l) // both rules are over
		})
	}
}

func TestRegisterAndGrantRefused(t *testing.T) {
	pair(t, func(t *testing.T, d *fault.Domain, a, _ *hooktest.End) {
		remove := d.Inject(fault.Rule{Ops: fault.Register, Skip: 1, Kind: errs.NoMemory})
		for i, want := range []errs.Kind{errs.OK, errs.NoMemory, errs.NoMemory} {
			if _, err := d.Register(make([]byte, 8)); errs.KindOf(err) != want {
				t.Fatalf("registration %d: %v", i, err)
			}
		}
		remove()
		_, err := d.Register(make([]byte, 8))
		wantKind(t, err, errs.OK)
		for _, kind := range []errs.Kind{errs.Again, errs.NoMemory} {
			d.Inject(fault.Rule{Ops: fault.Grant, Count: 1, Kind: kind})
			_, err := a.Reg.Grant(a.EP, 0, 8, fabric.RemoteRead)
			wantKind(t, err, kind)
		}
		a.Grant(0, 8)
	})
}

// A queue is full only while a completion is to come that makes room.
func TestAgainOnlyWhilePending(t *testing.T) {
	pair(t, func(t *testing.T, d *fault.Domain, a, b *hooktest.End) {
		d.Inject(fault.Rule{Ops: fault.Post | fault.Recv, Kind: errs.Again})
		rem := b.Grant(0, 8)
		for range 5 {
			a.Post(a.Move(fabric.OpWrite, 1, rem)) // nothing is pending
			wantKind(t, a.EP.Post([]fabric.WR{a.Move(fabric.OpWrite, 2, rem)}), errs.Again)
			if c := a.Next(1)[0]; c.Context != 1 || c.Err != nil {
				t.Fatalf("completion %+v", c)
			}
		}
		a.Recv(1, 8)
		recv := []fabric.Recv{{Context: 2, Reg: a.Reg, Buf: a.Mem[:8]}}
		wantKind(t, a.EP.PostRecv(recv), errs.Again)
		hooktest.Check(t, b.EP.Close())
		a.Next(1)
		wantKind(t, a.EP.PostRecv(recv), errs.Disconnected)
	})
}

// Rules that would make a fabric do what the contract forbids are mistakes.
func TestForbiddenRules(t *testing.T) {
	d := fault.New(sim.New(sim.Options{}).Open(), fault.Options{})
	for name, r := range map[string]fault.Rule{
		"nothing":             {},
		"both":                {Break: true, Kind: errs.Again},
		"a lost send":         {Ops: fault.Send, Kind: errs.IO},
		"a post of Closed":    {Ops: fault.Post, Kind: errs.Closed},
		"break a dial":        {Ops: fault.Dial, Break: true},
		"an early refusal":    {Ops: fault.Dial, Kind: errs.Again, Early: true},
		"negative":            {Break: true, Skip: -1},
		"disconnected grants": {Ops: fault.Grant, Kind: errs.Disconnected},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: allowed", name)
				}
			}()
			d.Inject(r)
		}()
	}
}
