package main

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
)

// adminMember makes a member of a cluster.
func adminMember(t *testing.T, a *identity.Authority, kind identity.Kind, name string,
) *identity.Keeper {
	t.Helper()
	key, now := identity.NewKey(), time.Now()
	der, err := identity.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	r, err := identity.ParseRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := a.Issue(r, kind, name, identity.Plan(now), now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := identity.NewCredential(key, &identity.Grant{Cluster: a.Cluster(), Kind: kind, Name: name,
		Rights: &identity.Rights{Path: "/"}, Certificate: chain,
		Authorities: identity.RawChain(a.Roots())})
	file := filepath.Join(t.TempDir(), "c.json")
	if err == nil {
		err = c.Write(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	k, err := identity.NewKeeper(file, identity.KeeperOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestAdminAddressesBeyondLoopback: hosts and clients that are named see them, others do not, and
// without certificates there are none.
func TestAdminAddressesBeyondLoopback(t *testing.T) {
	a, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "a"), identity.NewClusterID(),
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "meta"+adminSuffix)
	f := adminFlag{listen: "0.0.0.0:0", clients: []string{"prometheus"}}
	if _, err := f.serve(file, admin.WebOptions{}); errs.KindOf(err) != errs.Perm {
		t.Fatalf("without certificates: %v", err)
	}
	f.keeper = adminMember(t, a, identity.Host, "h1")
	stop, err := f.serve(file, admin.WebOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	addr, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	url := "https://" + strings.TrimSpace(string(addr)) + "/metrics"
	for _, who := range []struct {
		kind identity.Kind
		name string
		ok   bool
	}{{identity.Host, "h2", true}, {identity.Client, "prometheus", true},
		{identity.Client, "ann", false}} {
		conf := adminMember(t, a, who.kind, who.name).ClientTLS("http/1.1")
		tr := &http.Transport{TLSClientConfig: conf}
		r, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Get(url)
		if (err == nil) != who.ok {
			t.Errorf("%v %s: %v", who.kind, who.name, err)
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
		tr.CloseIdleConnections()
	}
}
