package hook_test

import (
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
	"github.com/sluice-storage/sluice/fabric/hook"
	"github.com/sluice-storage/sluice/fabric/hook/fault"
	"github.com/sluice-storage/sluice/fabric/hook/hooktest"
	"github.com/sluice-storage/sluice/fabric/hook/meter"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// The hooks as functions, outermost last.
func metered(_ testing.TB, d fabric.Domain) fabric.Domain { return meter.New(d) }

func faulty(_ testing.TB, d fabric.Domain) fabric.Domain { return fault.New(d, fault.Options{}) }

func stack(wraps ...hooktest.Wrap) hooktest.Wrap {
	return func(t testing.TB, d fabric.Domain) fabric.Domain {
		for _, w := range wraps {
			d = w(t, d)
		}
		return d
	}
}

// Both keep the contract together, in two orders.
func TestStacked(t *testing.T) {
	up, down := stack(faulty, metered), stack(metered, faulty)
	t.Run("sim, meter outermost", func(t *testing.T) {
		fabrictest.Run(t, overSim(up, sim.Options{}))
	})
	t.Run("sim, fault outermost", func(t *testing.T) {
		fabrictest.Run(t, overSim(down, sim.Options{RefusalEnds: true}))
	})
	t.Run("tcp, meter outermost", func(t *testing.T) { fabrictest.Run(t, overTCP(up)) })
	t.Run("tcp, fault outermost", func(t *testing.T) {
		cfg := overTCP(down)
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
}

func TestStackedSteadyStateDoesNotAllocate(t *testing.T) {
	fabrictest.SteadyAllocs(t, overTCP(stack(faulty, metered)))
	fabrictest.SteadyAllocs(t, overSim(stack(faulty, metered), sim.Options{}))
}

// BenchmarkRoundTrip tells what each hook costs.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		name string
		wrap hooktest.Wrap
	}{
		{"bare", stack()}, {"empty layer", stack(wrapped)}, {"meter", metered},
		{"fault", faulty}, {"both", stack(faulty, metered)},
	} {
		b.Run(c.name, func(b *testing.B) { fabrictest.PingPong(b, overTCP(c.wrap), 8) })
	}
}

func wrapped(_ testing.TB, d fabric.Domain) fabric.Domain { return hook.Wrap(d, hook.Layer{}) }
