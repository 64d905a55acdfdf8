package tcp

import (
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

func config(opts Options) fabrictest.Config {
	return fabrictest.Config{Open: func(t testing.TB) (fabric.Domain, func() string) {
		d, err := Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		return d, func() string { return "127.0.0.1:0" }
	}}
}

func TestConformance(t *testing.T) {
	t.Run("kernel buffers", func(t *testing.T) { fabrictest.Run(t, config(Options{})) })
	t.Run("waiters read", func(t *testing.T) {
		cfg := config(Options{})
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
	// Small buffers make every path of half-written and half-read frames common.
	t.Run("small buffers", func(t *testing.T) {
		fabrictest.Run(t, config(Options{SocketBuffer: 16 << 10}))
	})
}
