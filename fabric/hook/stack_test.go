package hook_test

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
	"github.com/sluice-storage/sluice/fabric/hook"
	"github.com/sluice-storage/sluice/fabric/hook/delay"
	"github.com/sluice-storage/sluice/fabric/hook/fault"
	"github.com/sluice-storage/sluice/fabric/hook/hooktest"
	"github.com/sluice-storage/sluice/fabric/hook/meter"
	"github.com/sluice-storage/sluice/fabric/hook/trace"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// The hooks as functions, outermost last.
func traced(t testing.TB, d fabric.Domain) fabric.Domain {
	w, err := trace.New(d, trace.Options{Events: 256})
	hooktest.Check(t, err)
	return w
}

func metered(_ testing.TB, d fabric.Domain) fabric.Domain { return meter.New(d) }

func faulty(_ testing.TB, d fabric.Domain) fabric.Domain { return fault.New(d, fault.Options{}) }

func delayed(t testing.TB, d fabric.Domain) fabric.Domain {
	w, err := delay.New(d, delay.Options{Seed: 1, Delay: delay.Span{Max: 200 * time.Microsecond}})
	hooktest.Check(t, err)
	return w
}

func stack(wraps ...hooktest.Wrap) hooktest.Wrap {
	return func(t testing.TB, d fabric.Domain) fabric.Domain {
		for _, w := range wraps {
			d = w(t, d)
		}
		return d
	}
}

// All four keep the contract together, in two orders.
func TestStacked(t *testing.T) {
	up, down := stack(faulty, delayed, metered, traced), stack(traced, metered, delayed, faulty)
	t.Run("sim, trace outermost", func(t *testing.T) {
		fabrictest.Run(t, overSim(up, sim.Options{}))
	})
	t.Run("sim, fault outermost", func(t *testing.T) {
		fabrictest.Run(t, overSim(down, sim.Options{RefusalEnds: true}))
	})
	t.Run("tcp, trace outermost", func(t *testing.T) { fabrictest.Run(t, overTCP(up)) })
	t.Run("tcp, fault outermost", func(t *testing.T) {
		cfg := overTCP(down)
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
}

func TestStackedSteadyStateDoesNotAllocate(t *testing.T) {
	fabrictest.SteadyAllocs(t, overTCP(stack(faulty, metered, traced)))
	fabrictest.SteadyAllocs(t, overSim(stack(faulty, delayed, metered, traced), sim.Options{}))
}

// BenchmarkRoundTrip tells what each hook costs.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		name string
		wrap hooktest.Wrap
	}{
		{"bare", stack()}, {"empty layer", stack(wrapped)}, {"trace", traced}, {"meter", metered},
		{"fault", faulty}, {"all but delay", stack(faulty, metered, traced)},
	} {
		b.Run(c.name, func(b *testing.B) { fabrictest.PingPong(b, overTCP(c.wrap), 8) })
	}
}

func wrapped(_ testing.TB, d fabric.Domain) fabric.Domain { return hook.Wrap(d, hook.Layer{}) }
