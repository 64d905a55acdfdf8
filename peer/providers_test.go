package peer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/msg"
)

// openHere opens what this host has, as a server or as a client of it.
func openHere(t *testing.T, opts Options) *Providers {
	t.Helper()
	p, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func secretHere(t *testing.T) *tcp.Secret {
	t.Helper()
	file := filepath.Join(t.TempDir(), tcp.SecretName)
	if err := os.WriteFile(file, []byte(strings.Repeat("a1", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return &tcp.Secret{File: file}
}

// TestOpenNeedsNothing: a client that says nothing at all reaches a server of this host by shared
// memory, whose socket it learns from the server, and whose secret it finds.
func TestOpenNeedsNothing(t *testing.T) {
	secret := secretHere(t)
	near := newNetwork(t, openHere(t, Options{Listens: true, Secret: secret}), msg.Options{})
	srv, err := near.ServeHost("127.0.0.1:0", filepath.Join(t.TempDir(), "socket"),
		mirror(near.Node), msg.ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for want, use := range map[string][]string{SHM: nil, TCP: {TCP}} {
		s := &steps{server: near, client: newNetwork(t, openHere(t, Options{Use: use}), msg.Options{})}
		c := s.dialAndUse(t, srv.Addr())
		if c.Provider() != want {
			t.Errorf("reached by %s, want %s: %s", c.Provider(), want, s.provided(c))
		}
	}
}

// TestWhoLends: those that listen lend their memory, and dial from memory of their own; where peers
// have certificates nobody lends any.
func TestWhoLends(t *testing.T) {
	for name, c := range map[string]struct {
		opts         Options
		lent, memory bool
	}{
		"dials":                     {Options{}, false, true},
		"listens":                   {Options{Listens: true, Secret: secretHere(t)}, true, false},
		"listens with certificates": {Options{Listens: true, Security: selfSigned(t, "a")}, false, false},
	} {
		p := openHere(t, c.opts)
		if (p.Lent != nil) != c.lent || (p.Memory != nil) != c.memory {
			t.Errorf("%s: %v, %v", name, p.Lent, p.Memory)
		}
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	p := openHere(t, Options{Use: []string{TCP}})
	if len(p.Domains) != 1 || len(p.Missing) != 2 || p.Memory != nil {
		t.Fatalf("%d domains, missing %v", len(p.Domains), p.Missing)
	}
	for _, s := range p.Missing {
		if errs.KindOf(s.Err) != errs.Unsupported {
			t.Errorf("%s: %v", s.Provider, s.Err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, opts := range map[string]Options{
		"an unknown provider":         {Use: []string{TCP, "smoke"}},
		"no tcp":                      {Use: []string{SHM}},
		"a listener without a secret": {Listens: true},
	} {
		if p, err := Open(opts); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

// TestServeHostDoesWithout: a socket that cannot be had is no reason not to serve by tcp.
func TestServeHostDoesWithout(t *testing.T) {
	n := newNetwork(t, openHere(t, Options{Listens: true, Secret: secretHere(t)}), msg.Options{})
	srv, err := n.ServeHost("127.0.0.1:0", filepath.Join(t.TempDir(), "no", "such", "folder"),
		answerer(), msg.ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := newNetwork(t, openHere(t, Options{}), msg.Options{}).Dial(t.Context(), srv.Addr())
	if err != nil || c.Provider() == SHM {
		t.Fatalf("reached by %v, %v", c, err)
	}
	if err := call(c, 20*time.Second, &msg.Request{}); err != nil {
		t.Fatal(err)
	}
}

// TestServeHostAtSeveral: a host of several networks is reached at each of its addresses, the first
// of which is the one that it tells.
func TestServeHostAtSeveral(t *testing.T) {
	secret := secretHere(t)
	n := newNetwork(t, openHere(t, Options{Listens: true, Secret: secret}), msg.Options{})
	srv, err := n.ServeHost("127.0.0.1:0,127.0.0.2:0", filepath.Join(t.TempDir(), "socket"),
		mirror(n.Node), msg.ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(srv.Addr(), "127.0.0.1:") {
		t.Errorf("it tells %s", srv.Addr())
	}
	reached := 0
	for _, p := range srv.Places() {
		if p.Domain.Caps().Provider != TCP {
			continue
		}
		for _, use := range [][]string{nil, {TCP}} {
			s := &steps{server: n, client: newNetwork(t, openHere(t, Options{Use: use}), msg.Options{})}
			s.dialAndUse(t, p.Addr)
			reached++
		}
	}
	if reached != 4 {
		t.Errorf("reached %d times", reached)
	}
	if _, err := n.ServeHost("127.0.0.1:0,nonsense", "", answerer(), msg.ServeOptions{}); err == nil {
		t.Error("an address that is none was passed over")
	}
}
