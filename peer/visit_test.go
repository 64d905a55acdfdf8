package peer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/fabric/verbs"
	"github.com/sluice-storage/sluice/msg"
)

// Two programs on one or two machines, which vmtest/transport starts: one runs TestLadderServe with
// the host to listen on in serveEnv, and prints where it is and its keys; the other runs
// TestLadderVisit with both, and with the provider that it should come by.
const (
	serveEnv = "SLUICE_PEER_SERVE"
	visitEnv = "SLUICE_PEER_VISIT"
	keysEnv  = "SLUICE_PEER_KEYS"
	wantEnv  = "SLUICE_PEER_WANT"
	skipEnv  = "SLUICE_PEER_SKIP" // providers that the visitor does without
)

// wholeLadder makes a network on every provider that this machine has. Why it has not the others is
// what the network says of them.
func wholeLadder(t *testing.T, sec *tcp.Security, tokens *fabric.Tokens, skip string) *Network {
	t.Helper()
	arenas := shm.NewArenas()
	p := &Providers{Tokens: tokens}
	close := func(d fabric.Domain) { t.Cleanup(func() { _ = d.Close() }) }
	for _, step := range []struct {
		name string
		open func() (fabric.Domain, error)
	}{
		{"shm", func() (fabric.Domain, error) {
			return shm.Open(shm.Options{Arenas: arenas, Tokens: tokens})
		}},
		{"verbs", func() (fabric.Domain, error) { return verbs.Open(verbs.Options{Tokens: tokens}) }},
	} {
		if strings.Contains(skip, step.name) {
			continue
		}
		d, err := step.open()
		if err != nil {
			p.Missing = append(p.Missing, Step{Provider: step.name, Err: err})
			continue
		}
		close(d)
		p.Domains = append(p.Domains, d)
	}
	base, err := tcp.Open(tcp.Options{Security: sec})
	if err != nil {
		t.Fatal(err)
	}
	close(base)
	p.Domains = append(p.Domains, base)
	return newNetwork(t, p, msg.Options{Source: arenas})
}

// TestLadderServe serves visitors by every provider until it is killed.
func TestLadderServe(t *testing.T) {
	host := os.Getenv(serveEnv)
	if host == "" {
		t.Skip("is a program that vmtest/transport starts")
	}
	k := makeKeys(t, "lab")
	sec, err := k.security("lab")
	if err != nil {
		t.Fatal(err)
	}
	s := steps{server: wholeLadder(t, sec, fabric.NewTokens(100), "")}
	// On all addresses: a visitor finds verbs by the one that tcp has brought it to.
	srv := s.serve(t, "tcp:"+host+":0,verbs:0.0.0.0:0,shm:"+filepath.Join(t.TempDir(), "sock"))
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("serving %s with %s\n", s.server.AddrOf(srv), text)
	select {}
}

// TestLadderVisit connects, moves data in every way, and tells by which provider and why.
func TestLadderVisit(t *testing.T) {
	addr := os.Getenv(visitEnv)
	if addr == "" {
		t.Skip("needs a server, which vmtest/transport starts")
	}
	var k keys
	if err := json.Unmarshal([]byte(os.Getenv(keysEnv)), &k); err != nil {
		t.Fatal(err)
	}
	sec, err := k.security("lab")
	if err != nil {
		t.Fatal(err)
	}
	s := steps{client: wholeLadder(t, sec, nil, os.Getenv(skipEnv))}
	c := s.dialAndUse(t, addr)
	for _, step := range s.client.Ladder(c) {
		fmt.Printf("step %s at %q: %v\n", step.Provider, step.Addr, step.Err)
	}
	if want := os.Getenv(wantEnv); c.Provider() != want {
		t.Fatalf("came by %s, want %s", c.Provider(), want)
	}
}
