package admin

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
)

// member makes a member of a cluster.
func member(t *testing.T, a *identity.Authority, kind identity.Kind, name string) *identity.Keeper {
	t.Helper()
	key, now := identity.NewKey(), time.Now()
	der, err := identity.NewRequest(key)
	fatal(t, err)
	r, err := identity.ParseRequest(der)
	fatal(t, err)
	chain, err := a.Issue(r, kind, name, identity.Plan(now), now)
	fatal(t, err)
	c, err := identity.NewCredential(key, &identity.Grant{Cluster: a.Cluster(), Kind: kind, Name: name,
		Rights: &identity.Rights{Path: "/"}, Certificate: chain,
		Authorities: identity.RawChain(a.Roots())})
	fatal(t, err)
	file := filepath.Join(t.TempDir(), "c.json")
	fatal(t, c.Write(file))
	k, err := identity.NewKeeper(file, identity.KeeperOptions{Log: slog.New(slog.DiscardHandler)})
	fatal(t, err)
	return k
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBeyondLoopbackNobodyIsServedUnknown(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:0", "host.example:0"} {
		if _, err := ServeWeb(WebOptions{Listen: addr}); errs.KindOf(err) != errs.Perm {
			t.Errorf("%s: %v", addr, err)
		}
	}
	open, err := net.Listen("tcp", "0.0.0.0:0")
	fatal(t, err)
	_, err = ServeWeb(WebOptions{Listen: "127.0.0.1:0", Profiles: open})
	if errs.KindOf(err) != errs.Perm {
		t.Errorf("profiles for everybody: %v", err)
	}
}

// site is an admin address at which everybody can knock, for hosts.
type site struct {
	*Web
	host *identity.Keeper

	mu  sync.Mutex
	log strings.Builder
}

func (s *site) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

func newSite(t *testing.T, a *identity.Authority) *site {
	t.Helper()
	s := &site{host: member(t, a, identity.Host, "h1")}
	conf := s.host.ServerTLS("http/1.1")
	conf.VerifyConnection = func(c tls.ConnectionState) error {
		_, err := s.host.Verify(identity.RawChain(c.PeerCertificates), identity.Host)
		return err
	}
	profiles, err := net.Listen("unix", filepath.Join(t.TempDir(), "p"))
	fatal(t, err)
	s.Web, err = ServeWeb(WebOptions{Listen: "0.0.0.0:0", TLS: conf, Gather: families,
		Profiles: profiles, Logger: slog.New(slog.NewTextHandler(s, nil))})
	fatal(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// fetch asks for a page; conf nil: without a certificate.
func (s *site) fetch(tr *http.Transport, page string) (int, error) {
	client := http.Client{Transport: tr, Timeout: time.Minute}
	r, err := client.Get(s.URL() + page)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return r.StatusCode, err
}

func newCA(t *testing.T) *identity.Authority {
	t.Helper()
	a, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "a"), identity.NewClusterID(),
		time.Now())
	fatal(t, err)
	return a
}

// TestBeyondLoopback: hosts are served over TLS, also none of the profiles; others are refused,
// logged once and counted; who is revoked is not served any more, on a connection that it has.
func TestBeyondLoopback(t *testing.T) {
	a := newCA(t)
	s := newSite(t, a)
	other := member(t, a, identity.Host, "h2")
	good := &http.Transport{TLSClientConfig: other.ClientTLS("http/1.1")}
	defer good.CloseIdleConnections()
	for page, want := range map[string]int{"/metrics": http.StatusOK, "/healthz": http.StatusOK,
		"/debug/pprof/": http.StatusNotFound, "/debug/pprof/heap": http.StatusNotFound} {
		if code, err := s.fetch(good, page); code != want {
			t.Errorf("%s: %d, %v", page, code, err)
		}
	}
	anonymous := &tls.Config{InsecureSkipVerify: true}
	for name, conf := range map[string]*tls.Config{"without a certificate": anonymous,
		"a client":        member(t, a, identity.Client, "ann").ClientTLS("http/1.1"),
		"another cluster": foreign(t, member(t, newCA(t), identity.Host, "h3"))} {
		tr := &http.Transport{TLSClientConfig: conf}
		if code, err := s.fetch(tr, "/metrics"); err == nil {
			t.Errorf("%s: %d", name, code)
		}
		tr.CloseIdleConnections()
	}
	if r, err := http.Get("http://" + s.Addr() + "/metrics"); err == nil {
		if r.StatusCode == http.StatusOK {
			t.Errorf("in the clear: %s", r.Status)
		}
		r.Body.Close()
	}
	for began := time.Now(); s.Refused() < 4; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d were refused", s.Refused())
		}
	}
	s.mu.Lock()
	if n := strings.Count(s.log.String(), "refused at the admin address"); n != 1 {
		t.Errorf("%d lines:\n%s", n, s.log.String())
	}
	s.mu.Unlock()
	s.host.Trust().SetDenied([]identity.Serial{other.Credential().Peer().Serial})
	if code, err := s.fetch(good, "/metrics"); code == http.StatusOK {
		t.Errorf("one that was revoked: %d, %v", code, err)
	}
}

// foreign is how a member of another cluster comes, which believes anybody.
func foreign(t *testing.T, k *identity.Keeper) *tls.Config {
	t.Helper()
	conf := k.ClientTLS("http/1.1")
	conf.VerifyConnection = nil
	return conf
}

// TestHalfOpenAdminConnections: those that send nothing, or nonsense, are bounded and keep nobody
// out.
func TestHalfOpenAdminConnections(t *testing.T) {
	a := newCA(t)
	s := newSite(t, a)
	var slow []net.Conn
	for i := range webPerAddr { // as many as one address may have
		c, err := net.Dial("tcp", s.Addr())
		fatal(t, err)
		defer c.Close()
		if i%2 == 0 {
			_, _ = c.Write(append([]byte{22, 3, 1}, make([]byte, 10000)...))
		}
		slow = append(slow, c)
	}
	_ = slow[0].Close() // it makes room for one
	tr := &http.Transport{TLSClientConfig: member(t, a, identity.Host, "h2").ClientTLS("http/1.1")}
	defer tr.CloseIdleConnections()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		code, err := s.fetch(tr, "/healthz")
		if code == http.StatusOK {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%d, %v", code, err)
		}
	}
}
