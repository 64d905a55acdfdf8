package peer

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/identity"
)

// keeperOf makes a member of a cluster whose authority is at hand.
func keeperOf(t *testing.T, a *identity.Authority, kind identity.Kind,
	name string) *identity.Keeper {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key, now := identity.NewKey(), time.Now()
	der, err := identity.NewRequest(key)
	must(err)
	r, err := identity.ParseRequest(der)
	must(err)
	chain, err := a.Issue(r, kind, name, identity.Plan(now), now)
	must(err)
	c, err := identity.NewCredential(key, &identity.Grant{Cluster: a.Cluster(), Kind: kind, Name: name,
		Rights: &identity.Rights{Path: "/"}, Certificate: chain,
		Authorities: identity.RawChain(a.Roots())})
	must(err)
	file := filepath.Join(t.TempDir(), "c.json")
	must(c.Write(file))
	k, err := identity.NewKeeper(file, identity.KeeperOptions{Log: slog.New(slog.DiscardHandler)})
	must(err)
	return k
}

// meet connects one keeper's process to another's, and returns whom the listener sees.
func meet(t *testing.T, server, client *tcp.Security) (fabric.Peer, error) {
	t.Helper()
	open := func(s *tcp.Security) (fabric.Domain, fabric.EndpointConfig) {
		d, err := tcp.Open(tcp.Options{Security: s, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		q, err := d.NewCQ(fabric.CQOptions{Depth: 64})
		if err != nil {
			t.Fatal(err)
		}
		return d, fabric.EndpointConfig{SendCQ: q, RecvCQ: q, SendDepth: 8, RecvDepth: 8}
	}
	at, listens := open(server)
	from, dials := open(client)
	ln, err := at.Connector().Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var seen fabric.Peer
	accepted := make(chan error, 1)
	go func() {
		_, err := ln.Accept(ctx, func(p fabric.Peer) (fabric.EndpointConfig, error) {
			seen = p
			return listens, nil
		})
		accepted <- err
	}()
	_, dialErr := from.Connector().Dial(ctx, ln.Addr().String(), dials)
	if dialErr != nil {
		cancel() // a listener says nothing of who proved nothing
	}
	return seen, errors.Join(dialErr, <-accepted)
}

// TestSecurityOfCredentials: the network believes members of the cluster, by their certificates,
// and nobody else; both ways of it.
func TestSecurityOfCredentials(t *testing.T) {
	a, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "a"), identity.NewClusterID(),
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "b"), a.Cluster(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	host, ann := keeperOf(t, a, identity.Host, "h1"), keeperOf(t, a, identity.Client, "ann")
	forged := keeperOf(t, b, identity.Client, "ann")
	for _, plain := range []bool{false, true} {
		p, err := meet(t, Security(host, plain), Security(ann, plain))
		if err != nil {
			t.Fatal(err)
		}
		who, err := identity.ParseWho(p.Name)
		if err != nil || who.Name != "ann" || who.Kind != identity.Client || who.Cluster != a.Cluster() {
			t.Fatalf("%q, %v", p.Name, err)
		}
		want := map[bool]fabric.Proof{false: fabric.ProofTLS, true: fabric.ProofFrames}[plain]
		if p.Proof != want {
			t.Fatalf("known by %v", p.Proof)
		}
	}
	_, err = meet(t, Security(host, false), Security(forged, false))
	if errs.KindOf(err) != errs.Perm {
		t.Fatalf("a forged authority: %v", err)
	}
	_, err = meet(t, Security(ann, false), Security(ann, false))
	if errs.KindOf(err) != errs.Perm {
		t.Fatalf("a client that serves: %v", err)
	}
	_, err = meet(t, Security(host, false), Security(ann, true))
	if err == nil {
		t.Fatal("one encrypts and the other does not")
	}
	for _, plain := range []bool{false, true} {
		p, err := meet(t, Security(host, plain), ClientSecurity(ann))
		want := map[bool]fabric.Proof{false: fabric.ProofTLS, true: fabric.ProofFrames}[plain]
		if err != nil || p.Proof != want {
			t.Fatalf("a client that leaves it to the server: %v, %v", p.Proof, err)
		}
	}
	host.Trust().SetDenied([]identity.Serial{ann.Credential().Peer().Serial})
	if _, err = meet(t, Security(host, false), Security(ann, false)); err == nil {
		t.Fatal("one that was revoked is served")
	}
}
