package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/systest/hosttest"
)

// Two programs of TestTwoNetworks, which are this test binary on two hosts: what they are told is
// where to listen, or to connect, and the keys.
const (
	netServeEnv = "SLUICE_PEER_NET_SERVE"
	netVisitEnv = "SLUICE_PEER_NET_VISIT"
	netKeysEnv  = "SLUICE_PEER_NET_KEYS"
)

// netNetwork is one of the two, over tcp with certificates.
func netNetwork(t *testing.T) *Network {
	t.Helper()
	var k keys
	if err := json.Unmarshal([]byte(os.Getenv(netKeysEnv)), &k); err != nil {
		t.Fatal(err)
	}
	sec, err := k.security("lab")
	if err != nil {
		t.Fatal(err)
	}
	// Silence is noticed as it is in the product, but sooner.
	p, err := Open(Options{Use: []string{TCP}, Security: sec, Listens: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return newNetwork(t, p, msg.Options{PeerTimeout: 2 * time.Second})
}

func TestNetworksServe(t *testing.T) {
	listen := os.Getenv(netServeEnv)
	if listen == "" {
		t.Skip("is a program of TestTwoNetworks")
	}
	n := netNetwork(t)
	s, err := n.ServeHost(listen, "", answerer(), msg.ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("serving %s\n", n.Announce(s))
	select {}
}

func TestNetworksVisit(t *testing.T) {
	addr := os.Getenv(netVisitEnv)
	if addr == "" {
		t.Skip("is a program of TestTwoNetworks")
	}
	n := netNetwork(t)
	pool := NewPool(n, func(context.Context, uint32) (string, error) { return addr, nil })
	for at := ""; ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		c, err := pool.Get(ctx, 1)
		if err == nil {
			err = call(c, 10*time.Second, &msg.Request{})
		}
		cancel()
		if w := n.wayOf(c); err == nil && w != nil && w.at != at {
			at = w.at
			fmt.Printf("by %s\n", at)
		}
	}
}

// TestTwoNetworks: a client of a host with two networks goes on by the second when the first is
// gone without a word, and comes back when it is.
func TestTwoNetworks(t *testing.T) {
	bed := hosttest.New(t, "server", "client")
	server, client := bed.Hosts[0], bed.Hosts[1]
	second := func(h *hosttest.Host) string {
		addr := strings.Replace(h.Addr, "192.0.2.", "198.51.100.", 1)
		if out, err := h.Run(t.Context(), "ip", "addr", "add", addr+"/24", "dev", "eth0"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return addr
	}
	other := second(server)
	second(client)
	text, err := json.Marshal(makeKeys(t, "lab"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(h *hosttest.Host, test, env string) *hosttest.Process {
		return h.Start("env", env, netKeysEnv+"="+string(text), self, "-test.run", "^"+test+"$",
			"-test.timeout", "0")
	}
	says := func(p *hosttest.Process, text string) string {
		t.Helper()
		want := regexp.MustCompile(text)
		for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(20 * time.Millisecond) {
			if m := want.FindStringSubmatch(p.Said()); m != nil {
				return m[len(m)-1]
			}
		}
		t.Fatalf("it does not say %q:\n%s", text, p.Said())
		return ""
	}
	s := start(server, "TestNetworksServe", netServeEnv+"="+server.Addr+":0,"+other+":0")
	addr := says(s, `(?m)^serving (\S+)$`)
	if !strings.Contains(addr, server.Addr) || !strings.Contains(addr, other) {
		t.Fatalf("announced %s", addr)
	}
	c := start(client, "TestNetworksVisit", netVisitEnv+"="+addr)
	first, next := regexp.QuoteMeta(server.Addr), regexp.QuoteMeta(other)
	says(c, `(?m)^by `+first)
	bed.Part(server, client)
	says(c, `(?m)^by `+first+`:\d+\n(.*\n)*by `+next)
	bed.Meet(server, client)
	says(c, `(?m)^by `+first+`:\d+\n(.*\n)*by `+next+`:\d+\n(.*\n)*by `+first)
	t.Logf("the client: %s", c.Said())
}
