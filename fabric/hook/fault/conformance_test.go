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

func openTCP(t testing.TB) fabric.Domain {
	d, err := tcp.Open(tcp.Options{})
	hooktest.Check(t, err)
	return d
}

func TestConformance(t *testing.T) {
	t.Run("sim", func(t *testing.T) {
		net := sim.New(sim.Options{Seed: 1, MaxDelay: 3})
		fabrictest.Run(t, fabrictest.Config{Open: func(t testing.TB) (fabric.Domain, func() string) {
			return wrap(t, net.Open()), func() string { return "" }
		}})
	})
	t.Run("tcp", func(t *testing.T) {
		fabrictest.Run(t, fabrictest.Config{
			Endless: true,
			Open: func(t testing.TB) (fabric.Domain, func() string) {
				return wrap(t, openTCP(t)), func() string { return "127.0.0.1:0" }
			},
		})
	})
}
