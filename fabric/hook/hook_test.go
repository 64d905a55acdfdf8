package hook_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
	"github.com/sluice-storage/sluice/fabric/hook"
	"github.com/sluice-storage/sluice/fabric/hook/hooktest"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func overSim(wrap hooktest.Wrap, opts sim.Options) fabrictest.Config {
	net := sim.New(opts)
	return hooktest.Over(wrap, "", func(_ testing.TB, tokens *fabric.Tokens) fabric.Domain {
		return net.OpenTokens(tokens)
	})
}

func overTCP(wrap hooktest.Wrap) fabrictest.Config {
	return hooktest.Over(wrap, "127.0.0.1:0", openTCP)
}

func openTCP(t testing.TB, tokens *fabric.Tokens) fabric.Domain {
	d, err := tcp.Open(tcp.Options{Tokens: tokens})
	hooktest.Check(t, err)
	return d
}

// twice is two layers that change nothing.
func twice(_ testing.TB, d fabric.Domain) fabric.Domain {
	return hook.Wrap(hook.Wrap(d, hook.Layer{}), hook.Layer{})
}

func TestTransparent(t *testing.T) {
	t.Run("sim", func(t *testing.T) {
		opts := sim.Options{Seed: 1, MaxDelay: 4, RegionsOnly: true}
		fabrictest.Run(t, overSim(twice, opts))
	})
	t.Run("tcp", func(t *testing.T) {
		cfg := overTCP(twice)
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
}

func TestSteadyStateDoesNotAllocate(t *testing.T) { fabrictest.SteadyAllocs(t, overTCP(twice)) }

// Things of one layer are strangers in another stack over the same provider.
func TestForeign(t *testing.T) {
	net := sim.New(sim.Options{})
	inner := net.Open()
	one, two := hook.Wrap(inner, hook.Layer{}), hook.Wrap(inner, hook.Layer{})
	a, _ := hooktest.Pair(t, one, hook.Wrap(net.Open(), hook.Layer{}), "b")
	reg, err := two.Register(make([]byte, 8))
	hooktest.Check(t, err)
	if _, err := reg.Grant(a.EP, 0, 8, fabric.RemoteRead); err == nil {
		t.Error("a region granted to an endpoint of another stack")
	}
	wr := fabric.WR{Op: fabric.OpSend, Local: []fabric.Sge{{Reg: reg, Buf: reg.Bytes()}}}
	if err := a.EP.Post([]fabric.WR{wr}); err == nil {
		t.Error("an endpoint took a region of another stack")
	}
}

// However many connections come and go, completions name the right endpoint while it matters.
func TestEndpointsComeAndGo(t *testing.T) {
	net := sim.New(sim.Options{})
	a := hooktest.NewEnd(t, hook.Wrap(net.Open(), hook.Layer{}), fabric.CQOptions{})
	b := hooktest.NewEnd(t, hook.Wrap(net.Open(), hook.Layer{}), fabric.CQOptions{})
	l, err := b.Dom.Connector().Listen("b")
	hooktest.Check(t, err)
	for i := range uint64(600) {
		hooktest.Connect(t, a, b, l)
		b.Recv(i, 8)
		wr := a.Send(i, 8)
		if i%2 == 0 {
			wr.Flags = 0 // silent: nobody can tell afterwards that it is over
		} else {
			a.Recv(i, 8) // completes with the Close
		}
		a.Post(wr)
		hooktest.Check(t, a.EP.Close())
		for _, c := range a.Next(int(i%2) * 2) {
			if c.EP != a.EP || c.Context != i {
				t.Fatalf("round %d: %+v", i, c)
			}
		}
		if c := b.Next(1)[0]; c.EP != b.EP || c.Err != nil {
			t.Fatalf("round %d: %+v", i, c)
		}
		hooktest.Check(t, b.EP.Close())
		a.Empty()
		b.Empty()
	}
}
