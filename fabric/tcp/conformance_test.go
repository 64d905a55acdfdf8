package tcp

import (
	"log/slog"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

func config(opts Options) fabrictest.Config {
	open := func(t testing.TB, tokens *fabric.Tokens) (fabric.Domain, func() string) {
		opts := opts
		opts.Tokens = tokens
		opts.Log = slog.New(slog.DiscardHandler)
		d, err := Open(opts)
		fatal(t, err)
		return d, func() string { return "127.0.0.1:0" }
	}
	cfg := fabrictest.Config{
		Open: func(t testing.TB) (fabric.Domain, func() string) { return open(t, nil) },
	}
	if opts.Security == nil && opts.Secret == nil { // who has proved something is known by that
		cfg.OpenTokens = open
	}
	return cfg
}

func TestConformance(t *testing.T) {
	// Each of the others has one thing that one of these has too: -short leaves them out.
	long := func(name string, f func(t *testing.T)) {
		if !testing.Short() {
			t.Run(name, f)
		}
	}
	t.Run("kernel buffers", func(t *testing.T) { fabrictest.Run(t, config(Options{})) })
	t.Run("waiters read", func(t *testing.T) {
		cfg := config(Options{})
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
	// Small buffers make every path of half-written and half-read frames common.
	long("small buffers", func(t *testing.T) {
		fabrictest.Run(t, config(Options{SocketBuffer: 48 << 10}))
	})
	long("secret", func(t *testing.T) {
		fabrictest.Run(t, config(Options{Secret: &Secret{File: newSecret(t)}}))
	})
	a := newAuthority(t)
	long("tls", func(t *testing.T) {
		fabrictest.Run(t, config(Options{Security: a.security(t, "both")}))
	})
	t.Run("tls, waiters read, small buffers", func(t *testing.T) {
		cfg := config(Options{Security: a.security(t, "both"), SocketBuffer: 64 << 10})
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
	plain := a.security(t, "both")
	plain.Plaintext = true
	long("frames", func(t *testing.T) {
		fabrictest.Run(t, config(Options{Security: plain}))
	})
	t.Run("frames, waiters read, small buffers", func(t *testing.T) {
		cfg := config(Options{Security: plain, SocketBuffer: 64 << 10})
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
}
