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
	t.Run("kernel buffers", func(t *testing.T) { fabrictest.Run(t, config(Options{})) })
	t.Run("waiters read", func(t *testing.T) {
		cfg := config(Options{})
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
	// Small buffers make every path of half-written and half-read frames common.
	t.Run("small buffers", func(t *testing.T) {
		fabrictest.Run(t, config(Options{SocketBuffer: 48 << 10}))
	})
	t.Run("secret", func(t *testing.T) {
		fabrictest.Run(t, config(Options{Secret: &Secret{File: newSecret(t)}}))
	})
	a := newAuthority(t)
	t.Run("tls", func(t *testing.T) {
		fabrictest.Run(t, config(Options{Security: a.security(t, "both")}))
	})
	t.Run("tls, waiters read, small buffers", func(t *testing.T) {
		cfg := config(Options{Security: a.security(t, "both"), SocketBuffer: 64 << 10})
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
	plain := a.security(t, "both")
	plain.Plaintext = true
	t.Run("frames", func(t *testing.T) {
		fabrictest.Run(t, config(Options{Security: plain}))
	})
	t.Run("frames, waiters read, small buffers", func(t *testing.T) {
		cfg := config(Options{Security: plain, SocketBuffer: 64 << 10})
		cfg.Endless = true
		fabrictest.Run(t, cfg)
	})
}
