package peer

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/msg"
)

// TestNothingIsAnsweredBeforeTheProof: a server whose peers must know a secret tells others neither
// what it offers nor anything else. Those who know it get the tokens for better ways.
func TestNothingIsAnsweredBeforeTheProof(t *testing.T) {
	write := func(digit string) *tcp.Secret {
		file := filepath.Join(t.TempDir(), tcp.SecretName)
		if err := os.WriteFile(file, []byte(strings.Repeat(digit, 64)), 0o600); err != nil {
			t.Fatal(err)
		}
		return &tcp.Secret{File: file}
	}
	quiet := slog.New(slog.DiscardHandler)
	right, wrong := write("a"), write("b")
	tokens := fabric.NewTokens(10)
	server := onHostBy(t, tcp.Options{Secret: right, Log: quiet}, tokens)
	var asked, known atomic.Int64
	srv, err := server.Serve("tcp:127.0.0.1:0,shm:"+filepath.Join(t.TempDir(), "sock"),
		msg.HandlerFunc(func(_ context.Context, c *msg.Call) {
			asked.Add(1)
			if p := c.Peer(); p.Proof == fabric.ProofToken && p.Name != "" {
				known.Add(1)
			}
			_ = c.Reply(nil, 0)
		}), msg.ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, secret := range map[string]*tcp.Secret{"none": nil, "another": wrong} {
		c, err := onHostBy(t, tcp.Options{Secret: secret, Log: quiet}, nil).Dial(t.Context(),
			server.AddrOf(srv))
		if errs.KindOf(err) != errs.Perm {
			t.Errorf("%s: connected by %v, %v", name, c, err)
		}
	}
	conns := srv.Stats().Conns
	if conns != 0 || asked.Load() != 0 {
		t.Errorf("%d connections and %d requests of strangers", conns, asked.Load())
	}
	client := onHostBy(t, tcp.Options{Secret: &tcp.Secret{}, Log: quiet}, nil)
	c, err := client.Dial(t.Context(), server.AddrOf(srv))
	if err != nil {
		t.Fatal(err)
	}
	if err := call(c, 10*time.Second, &msg.Request{}); err != nil {
		t.Fatal(err)
	}
	if c.Provider() != "shm" || known.Load() != 1 {
		t.Errorf("%v: the server does not know who asks", client.Ladder(c))
	}
}
