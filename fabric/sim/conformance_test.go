package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

func config(opts Options) fabrictest.Config {
	net := New(opts)
	addr := func() string { return "" }
	return fabrictest.Config{
		Open: func(testing.TB) (fabric.Domain, func() string) { return net.Open(), addr },
		OpenTokens: func(_ testing.TB, tokens *fabric.Tokens) (fabric.Domain, func() string) {
			return net.OpenTokens(tokens), addr
		},
	}
}

func TestConformance(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for name, opts := range map[string]Options{
		"free-running": {},
		"delayed":      {Seed: seed, MaxDelay: 20},
		"small":        {Seed: seed, MaxDelay: 3, RegionsOnly: true, Limits: tight()},
		"devices":      {Seed: seed, MaxDelay: 5, RegionsOnly: true, RefusalEnds: true},
		"brisk":        {RefusalEnds: true},
	} {
		t.Run(name, func(t *testing.T) { fabrictest.Run(t, config(opts)) })
	}
}

// tight is what small devices have.
func tight() fabric.Caps {
	return fabric.Caps{MaxSge: 4, MaxInline: 64, ReadDepth: 2, MaxMessage: 8192, QueueDepth: 128}
}

func BenchmarkFabric(b *testing.B) { fabrictest.Bench(b, config(Options{})) }

func TestSteadyAllocs(t *testing.T) { fabrictest.SteadyAllocs(t, config(Options{})) }
