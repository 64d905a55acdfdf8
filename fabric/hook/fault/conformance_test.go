package fault_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
	"github.com/sluice-storage/sluice/fabric/hook/fault"
	"github.com/sluice-storage/sluice/fabric/hook/hooktest"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wrap(_ testing.TB, inner fabric.Domain) fabric.Domain {
	return fault.New(inner, fault.Options{})
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
	t.Run("sim", func(t *testing.T) {
		fabrictest.Run(t, overSim(wrap, sim.Options{Seed: 1, MaxDelay: 3}))
	})
	t.Run("sim, as devices are", func(t *testing.T) {
		fabrictest.Run(t, overSim(wrap, sim.Options{RegionsOnly: true, RefusalEnds: true}))
	})
	t.Run("tcp", func(t *testing.T) {
		cfg := overTCP(wrap)
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
}

func TestSteadyStateDoesNotAllocate(t *testing.T) { fabrictest.SteadyAllocs(t, overTCP(wrap)) }
