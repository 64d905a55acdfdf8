package peer

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/msg"
)

// keyed is a server and a client of a cluster with certificates, each with all providers that it
// opens by itself.
type keyed struct {
	host, ann      *identity.Keeper
	server, client *Network
	srv            *msg.Server
	seen           chan fabric.Peer // by the server, of each request
}

func newAuthority(t *testing.T) *identity.Authority {
	t.Helper()
	a, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "a"), identity.NewClusterID(),
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// openKeyed makes a network by certificates.
func openKeyed(t *testing.T, k *identity.Keeper, o Options, plaintext bool) *Network {
	t.Helper()
	o.Security = Security(k, plaintext)
	p, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return newNetwork(t, p, msg.Options{})
}

func newKeyed(t *testing.T, plaintext bool, use ...string) *keyed {
	t.Helper()
	a := newAuthority(t)
	k := &keyed{host: keeperOf(t, a, identity.Host, "h1"), seen: make(chan fabric.Peer, 100),
		ann: keeperOf(t, a, identity.Client, "ann")}
	k.server = openKeyed(t, k.host, Options{Listens: true, Use: use}, plaintext)
	k.client = openKeyed(t, k.ann, Options{Use: use}, plaintext)
	var err error
	k.srv, err = k.server.ServeHost("127.0.0.1:0", filepath.Join(t.TempDir(), "sock"),
		msg.HandlerFunc(func(_ context.Context, c *msg.Call) {
			k.seen <- c.Peer()
			_ = c.Reply(nil, 0)
		}), msg.ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// visit connects and sends a request; it returns whom the server sees.
func (k *keyed) visit(t *testing.T, addr string) (*msg.Conn, fabric.Peer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := k.client.Dial(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := call(c, time.Minute, &msg.Request{}); err != nil {
		t.Fatal(err)
	}
	return c, <-k.seen
}

// knows tells whether both sides know who the other is.
func (k *keyed) knows(t *testing.T, c *msg.Conn, seen fabric.Peer, proof fabric.Proof) {
	t.Helper()
	if seen.Proof != proof || seen.Name != k.ann.Credential().Peer().Who.String() {
		t.Errorf("over %s the server sees %v %q", c.Provider(), seen.Proof, seen.Name)
	}
	server := k.client.Known(c)
	if server.Proof != proof || server.Name != k.host.Credential().Peer().Who.String() {
		t.Errorf("over %s the client sees %v %q", c.Provider(), server.Proof, server.Name)
	}
}

// TestKeyedSharedMemory: on one host a client with a certificate climbs to shared memory by a token
// that it was given under TLS, or under authenticated plaintext: the server knows whose rights it
// has. Nobody else gets there.
func TestKeyedSharedMemory(t *testing.T) {
	for _, plaintext := range []bool{false, true} {
		k := newKeyed(t, plaintext, SHM, TCP)
		c, seen := k.visit(t, k.srv.Addr())
		if c.Provider() != SHM {
			t.Fatalf("%v", k.client.Ladder(c))
		}
		k.knows(t, c, seen, fabric.ProofToken)
		only := strings.Split(k.server.AddrOf(k.srv), ",")[1]
		if _, err := k.client.Dial(t.Context(), only); errs.KindOf(err) != errs.Perm {
			t.Fatalf("without a token: %v", err)
		}
		await(t, func() bool { return k.server.Refused()[SHM] == 1 })
	}
}

// TestKeyedVerbs is the same over an RDMA device, where there is one.
func TestKeyedVerbs(t *testing.T) {
	for _, plaintext := range []bool{false, true} {
		k := newKeyed(t, plaintext, Verbs, TCP)
		if len(k.client.steps) < 2 {
			t.Skipf("no RDMA device: %v", k.client.missing[len(k.client.missing)-1].Err)
		}
		c, seen := k.visit(t, k.srv.Addr())
		// A step has some seconds, and an emulated machine may need more.
		for range 5 {
			if c.Provider() == Verbs {
				break
			}
			t.Logf("%v", k.client.Ladder(c))
			c, seen = k.visit(t, k.srv.Addr())
		}
		if c.Provider() != Verbs {
			t.Fatalf("%v", k.client.Ladder(c))
		}
		k.knows(t, c, seen, fabric.ProofToken)
		k.host.Trust().SetDenied([]identity.Serial{k.ann.Credential().Peer().Serial})
		await(t, func() bool { return c.Err() != nil })
	}
}

// linksEnv are the network interfaces that RDMA devices are on, which the test may take down: it is
// set in a virtual machine, by vmtest/transport.
const linksEnv = "SLUICE_PEER_LINKS"

// TestKeyedVerbsClimb: when a device goes requests go by the other, when that goes too by tcp, and
// when they are back by verbs again.
func TestKeyedVerbsClimb(t *testing.T) {
	links := strings.Fields(os.Getenv(linksEnv))
	if len(links) != 2 {
		t.Skip("takes network interfaces down: vmtest/transport runs it")
	}
	k := newKeyed(t, false, Verbs, TCP)
	run := func(command string) {
		t.Helper()
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	pool := poolOf(t, k.client, k.srv.Addr())
	ask := func() *msg.Conn {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c, err := pool.Get(ctx, 1)
		if err != nil || call(c, 10*time.Second, &msg.Request{}) != nil {
			return nil
		}
		<-k.seen
		return c
	}
	goes := func(provider string) {
		t.Helper()
		began := time.Now()
		for c := ask(); c == nil || c.Provider() != provider; c = ask() {
			if time.Since(began) > 3*time.Minute {
				t.Fatalf("not by %s: %v", provider, k.client.Ladder(mustGet(t, pool)))
			}
			time.Sleep(50 * time.Millisecond)
		}
		c := mustGet(t, pool)
		t.Logf("by %s at %s after %v", provider, k.client.wayOf(c).at, time.Since(began))
	}
	goes(Verbs)
	first := k.client.wayOf(mustGet(t, pool)).at
	down := 0 // the link of the device that was taken
	if out, _ := exec.Command("ip", "-4", "addr", "show", links[1]).Output(); strings.Contains(
		string(out), first[:strings.LastIndex(first, ":")]+"/") {
		down = 1
	}
	run("ip link set " + links[down] + " down")
	goes(Verbs)
	if now := k.client.wayOf(mustGet(t, pool)).at; now == first {
		t.Errorf("still at %s", now)
	}
	run("ip link set " + links[1-down] + " down")
	goes(TCP)
	for _, link := range links { // Soft-RoCE is deaf after that, until it is made anew: see verbs' lab
		device := strings.Replace(link, "eth", "rxe", 1)
		run("ip link set " + link + " up; rdma link del " + device + "; rdma link add " + device +
			" type rxe netdev " + link)
	}
	goes(Verbs)
	if k.client.Climbed()[Verbs] == 0 {
		t.Errorf("counted %v", k.client.Climbed())
	}
}

// TestRevokedPeersAreLeft: a listener that hears of a denial ends what the peer has open, over tcp
// and where it has climbed to by a token; others stay.
func TestRevokedPeersAreLeft(t *testing.T) {
	for _, use := range [][]string{{TCP}, {SHM, TCP}} {
		k := newKeyed(t, false, use...)
		c, _ := k.visit(t, k.srv.Addr())
		if c.Provider() != use[0] {
			t.Fatalf("%v", k.client.Ladder(c))
		}
		other := openKeyed(t, k.host, Options{Use: use}, false)
		stays, err := other.Dial(t.Context(), k.srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		k.host.Trust().SetDenied([]identity.Serial{{1}}) // somebody else
		if err := call(c, time.Minute, &msg.Request{}); err != nil {
			t.Fatal(err)
		}
		<-k.seen
		k.host.Trust().SetDenied([]identity.Serial{k.ann.Credential().Peer().Serial})
		await(t, func() bool { return c.Err() != nil })
		if err := call(stays, time.Minute, &msg.Request{}); err != nil {
			t.Fatalf("another peer: %v", err)
		}
		await(t, func() bool { return k.server.Revoked() == 1 })
		if _, err := k.client.Dial(t.Context(), k.srv.Addr()); errs.KindOf(err) != errs.Perm {
			t.Fatalf("it comes back: %v", err)
		}
	}
}

// TestRevokedServersAreLeft: a client that hears of a denial leaves the server, by which way ever
// it has come there.
func TestRevokedServersAreLeft(t *testing.T) {
	for _, use := range [][]string{{TCP}, {SHM, TCP}} {
		k := newKeyed(t, false, use...)
		c, _ := k.visit(t, k.srv.Addr())
		k.ann.Trust().SetDenied([]identity.Serial{k.host.Credential().Peer().Serial})
		await(t, func() bool { return c.Err() != nil })
		await(t, func() bool { return k.client.Revoked() == 1 })
		if errs.KindOf(c.Err()) != errs.Disconnected {
			t.Fatal(c.Err())
		}
	}
}
