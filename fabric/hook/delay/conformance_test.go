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

func wrap(t testing.TB, inner fabric.Domain, opts delay.Options) fabric.Domain {
	d, err := delay.New(inner, opts)
	hooktest.Check(t, err)
	return d
}

func openTCP(t testing.TB) fabric.Domain {
	d, err := tcp.Open(tcp.Options{})
	hooktest.Check(t, err)
	return d
}

func config(open func(t testing.TB) fabric.Domain, addr string, opts delay.Options) fabrictest.Config {
	return fabrictest.Config{Open: func(t testing.TB) (fabric.Domain, func() string) {
		return wrap(t, open(t), opts), func() string { return addr }
	}}
}

func TestConformance(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	slow := delay.Options{
		Seed: seed, Delay: delay.Span{Max: 300 * time.Microsecond}, Bandwidth: 4 << 30,
		Ops: map[fabric.Op]delay.Span{fabric.OpRead: {Min: 20 * time.Microsecond}},
	}
	t.Run("sim", func(t *testing.T) {
		net := sim.New(sim.Options{Seed: seed, MaxDelay: 3})
		open := func(testing.TB) fabric.Domain { return net.Open() }
		fabrictest.Run(t, config(open, "", slow))
	})
	t.Run("tcp", func(t *testing.T) { fabrictest.Run(t, config(openTCP, "127.0.0.1:0", slow)) })
	t.Run("tcp, no delay", func(t *testing.T) {
		cfg := config(openTCP, "127.0.0.1:0", delay.Options{PerEndpoint: true})
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
}
