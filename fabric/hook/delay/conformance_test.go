package delay_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
	"github.com/sluice-storage/sluice/fabric/hook/delay"
	"github.com/sluice-storage/sluice/fabric/hook/hooktest"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wrap(opts delay.Options) hooktest.Wrap {
	return func(t testing.TB, inner fabric.Domain) fabric.Domain {
		d, err := delay.New(inner, opts)
		hooktest.Check(t, err)
		return d
	}
}

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

func TestConformance(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	slow := wrap(delay.Options{
		Seed: seed, Delay: delay.Span{Max: 300 * time.Microsecond}, Bandwidth: 4 << 30,
		Ops: map[fabric.Op]delay.Span{fabric.OpRead: {Min: 20 * time.Microsecond}},
	})
	t.Run("sim", func(t *testing.T) { fabrictest.Run(t, overSim(slow, sim.Options{})) })
	t.Run("sim, as devices are", func(t *testing.T) {
		fabrictest.Run(t, overSim(slow, sim.Options{RegionsOnly: true, RefusalEnds: true}))
	})
	t.Run("tcp", func(t *testing.T) { fabrictest.Run(t, overTCP(slow)) })
	t.Run("tcp, no delay", func(t *testing.T) {
		cfg := overTCP(wrap(delay.Options{PerEndpoint: true}))
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
}

// Over sim: a tcp queue allocates when a post finds its waiter in the socket, and the pump always
// is.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	fabrictest.SteadyAllocs(t, overSim(wrap(delay.Options{
		Delay: delay.Span{Max: 100 * time.Microsecond}, Bandwidth: 1 << 40,
	}), sim.Options{}))
}
