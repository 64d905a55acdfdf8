package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newAuthority(t testing.TB) *Authority {
	t.Helper()
	a, err := CreateAuthority(filepath.Join(t.TempDir(), "keys"), NewClusterID(), noon)
	fatal(t, err)
	return a
}

// issue makes a key and its certificate.
func issue(t testing.TB, a *Authority, kind Kind, name string, now time.Time) (
	ed25519.PrivateKey, [][]byte, NewCertificate) {
	t.Helper()
	key := NewKey()
	der, err := NewRequest(key)
	fatal(t, err)
	r, err := ParseRequest(der)
	fatal(t, err)
	plan := Plan(now)
	chain, err := a.Issue(r, kind, name, plan, now)
	fatal(t, err)
	return key, chain, plan
}

func trustOf(a *Authority) *Trust { return NewTrust(a.Cluster(), a.Roots()...) }

func TestVerify(t *testing.T) {
	a := newAuthority(t)
	_, chain, plan := issue(t, a, Client, "ann", noon)
	p, err := trustOf(a).Verify(chain, noon, Host, Client)
	fatal(t, err)
	if p.Who != (Who{a.Cluster(), Client, "ann"}) || p.Serial != plan.Serial ||
		!p.NotAfter.Equal(plan.NotAfter) {
		t.Fatalf("%+v", p)
	}
}

// TestRefusals: certificates of others, of the wrong kind, out of their time, denied, and forged.
func TestRefusals(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	trust := trustOf(a)
	_, client, plan := issue(t, a, Client, "ann", noon)
	_, foreign, _ := issue(t, other, Client, "ann", noon)
	_, err := trust.Verify(client, noon, Host)
	want(t, err, errs.Perm, "is a client")
	_, err = trust.Verify(foreign, noon, Client)
	want(t, err, errs.Perm, "client ann belongs to another cluster")
	_, err = trust.Verify(foreign, noon.Add(2*Life), Client)
	want(t, err, errs.Perm, "client ann belongs to another cluster")
	_, err = trust.Verify(nil, noon, Client)
	want(t, err, errs.Perm, "0 certificates")
	_, err = trust.Verify([][]byte{{1, 2, 3}}, noon, Client)
	want(t, err, errs.Perm, "cannot be read")
	_, err = trust.Verify([][]byte{make([]byte, certMax+1)}, noon, Client)
	want(t, err, errs.Perm, "bytes")
	_, err = trust.Verify([][]byte{a.Roots()[0].Raw}, noon, Client, Host)
	want(t, err, errs.Perm, "no host or client")

	// Clocks: a day late and the tolerance at both ends are believed, more is not.
	for _, at := range []time.Duration{-24 * time.Hour, -backdate - Skew + time.Second, Life,
		Life + Skew - time.Second} {
		if _, err := trust.Verify(client, noon.Add(at), Client); err != nil {
			t.Errorf("%v after it was made: %v", at, err)
		}
	}
	_, err = trust.Verify(client, noon.Add(-backdate-Skew-time.Second), Client)
	want(t, err, errs.Perm, "which clock is wrong")
	_, err = trust.Verify(client, noon.Add(Life+Skew+time.Second), Client)
	want(t, err, errs.Perm, "has ended")

	changed := trust.Changed()
	trust.SetDenied([]Serial{{1}, plan.Serial})
	select {
	case <-changed:
	default:
		t.Error("nobody hears of denials")
	}
	_, err = trust.Verify(client, noon, Client)
	want(t, err, errs.Perm, "revoked")
}

// TestForgeries: what somebody makes with keys of his own, or with a certificate that he got.
func TestForgeries(t *testing.T) {
	a := newAuthority(t)
	trust := trustOf(a)
	key, chain, _ := issue(t, a, Client, "ann", noon)
	ann, err := x509.ParseCertificate(chain[0])
	fatal(t, err)
	serial := newSerial()
	template := &x509.Certificate{SerialNumber: new(big.Int).SetBytes(serial[:]),
		NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(time.Hour),
		URIs: []*url.URL{{Scheme: "sluice", Host: a.Cluster().String(), Path: "/host/h1"}}}
	mine := NewKey()
	der, err := x509.CreateCertificate(rand.Reader, template, ann, mine.Public(), key)
	fatal(t, err)
	_, err = trust.Verify([][]byte{der, chain[0]}, noon, Host)
	want(t, err, errs.Perm, "not by the authority")

	forger, err := CreateAuthority(filepath.Join(t.TempDir(), "f"), a.Cluster(), noon)
	fatal(t, err) // it says that it is of the same cluster
	_, forged, _ := issue(t, forger, Host, "h1", noon)
	for _, show := range [][][]byte{forged, {forged[0], forger.Roots()[0].Raw}} {
		_, err = trust.Verify(show, noon, Host)
		want(t, err, errs.Perm, "not by the authority")
	}
	_, pin := a.Generation()
	srv, err := forger.Serve("h1", Plan(noon), noon)
	fatal(t, err)
	_, err = VerifyPinned(srv.Certificate, pin, noon)
	want(t, err, errs.Perm, "does not show the authority")
	// Showing the true authority's certificate beside it helps nothing.
	_, err = VerifyPinned([][]byte{srv.Certificate[0], a.Roots()[0].Raw}, pin, noon)
	want(t, err, errs.Perm, "not by the authority")
	// A client's certificate is none of a server.
	_, err = VerifyPinned([][]byte{chain[0], a.Roots()[0].Raw}, pin, noon)
	want(t, err, errs.Perm, "is a client")
	good, err := a.Serve("h1", Plan(noon), noon)
	fatal(t, err)
	p, err := VerifyPinned(good.Certificate, pin, noon)
	if err != nil || p.Name != "h1" {
		t.Fatal(p, err)
	}
}

// TestRotation: two authorities are valid while they rotate. Who knows the old one only believes
// what the new one signs, and the other way round, until the old one is retired.
func TestRotation(t *testing.T) {
	a := newAuthority(t)
	old := trustOf(a)
	_, before, _ := issue(t, a, Client, "ann", noon)
	_, pin := a.Generation()
	fatal(t, a.Rotate(SigningKey, noon))
	if n, now := a.Generation(); n != 2 || now == pin {
		t.Fatalf("generation %d", n)
	}
	_, after, _ := issue(t, a, Host, "h2", noon)
	both := trustOf(a)
	for _, trust := range []*Trust{old, both} {
		for _, chain := range [][][]byte{before, after} {
			if _, err := trust.Verify(chain, noon, Host, Client); err != nil {
				t.Error(err)
			}
		}
	}
	srv, err := a.Serve("h1", Plan(noon), noon)
	fatal(t, err)
	if _, err := VerifyPinned(srv.Certificate, pin, noon); err != nil {
		t.Errorf("a token from before the rotation: %v", err)
	}
	want(t, a.Rotate(SigningKey, noon), errs.Busy, "retire")

	again, err := OpenAuthority(a.dir) // another process
	fatal(t, err)
	fatal(t, again.Retire(SigningKey))
	fatal(t, again.Retire(SigningKey))
	if changed, err := a.Reload(); !changed || err != nil {
		t.Fatal(changed, err)
	}
	only := trustOf(a)
	_, err = only.Verify(before, noon, Client)
	want(t, err, errs.Perm, "not by the authority")
	if _, err := only.Verify(after, noon, Host); err != nil {
		t.Error(err)
	}
	fatal(t, a.Rotate(SigningKey, noon)) // and once more
	_, third, _ := issue(t, a, Host, "h3", noon)
	if _, err := only.Verify(third, noon, Host); err != nil {
		t.Error(err)
	}
	_, err = old.Verify(third, noon, Host)
	want(t, err, errs.Perm, "not by the authority")
}

func TestSecretsRotate(t *testing.T) {
	a := newAuthority(t)
	first := a.Secrets()
	fatal(t, a.Rotate(SecretKey, noon))
	two := a.Secrets()
	if len(first) != 1 || len(two) != 2 || two[1].Fingerprint() != first[0].Fingerprint() ||
		two[0].Generation != 2 || two[0].Fingerprint() == first[0].Fingerprint() {
		t.Fatalf("%d, then %d secrets", len(first), len(two))
	}
	want(t, a.Rotate(SecretKey, noon), errs.Busy, "retire")
	fatal(t, a.Retire(SecretKey))
	if left := a.Secrets(); len(left) != 1 || left[0].Generation != 2 {
		t.Fatalf("%d secrets", len(left))
	}
}

// TestKeysThatOthersCanRead are refused, and so is what is damaged or somebody else's.
func TestKeysThatOthersCanRead(t *testing.T) {
	a := newAuthority(t)
	file := filepath.Join(a.dir, authorityFile)
	info, err := os.Stat(file)
	fatal(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Fatalf("made with mode %v", info.Mode())
	}
	refuse := func(words string, kind errs.Kind) {
		t.Helper()
		_, err := OpenAuthority(a.dir)
		want(t, err, kind, words)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o666} {
		fatal(t, os.Chmod(file, mode))
		refuse("chmod 600", errs.Perm)
	}
	fatal(t, os.Chmod(file, 0o600))
	for _, mode := range []os.FileMode{0o750, 0o705, 0o711, 0o777} {
		fatal(t, os.Chmod(a.dir, mode))
		refuse("chmod 700", errs.Perm)
	}
	fatal(t, os.Chmod(a.dir, 0o700))
	if os.Geteuid() == 0 {
		fatal(t, os.Chown(file, 4242, -1))
		refuse("belongs to uid 4242", errs.Perm)
		fatal(t, os.Chown(file, 0, -1))
		fatal(t, os.Chown(a.dir, 4242, -1))
		refuse("belongs to uid 4242", errs.Perm)
		fatal(t, os.Chown(a.dir, 0, -1))
	}
	_, err = CreateAuthority(a.dir, NewClusterID(), noon)
	want(t, err, errs.Exists, "")
	fatal(t, os.WriteFile(file, []byte(`{"format": 9}`), 0o600))
	refuse("format 9", errs.Version)
	fatal(t, os.WriteFile(file, []byte(`{`), 0o600))
	refuse("", errs.Corrupt)
	fatal(t, os.Remove(file))
	fatal(t, os.Mkdir(file, 0o700))
	refuse("it is no file", errs.Invalid)
}

// TestInterrupted: what an attempt that died has left is no obstacle.
func TestInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	fatal(t, os.Mkdir(dir, 0o700))
	fatal(t, os.WriteFile(filepath.Join(dir, ".authority.json.123"), []byte("half"), 0o600))
	a, err := CreateAuthority(dir, NewClusterID(), noon)
	fatal(t, err)
	fatal(t, os.WriteFile(filepath.Join(dir, ".authority.json.124"), []byte("half"), 0o600))
	fatal(t, a.Rotate(SigningKey, noon))
	again, err := OpenAuthority(dir)
	fatal(t, err)
	if n, _ := again.Generation(); n != 2 {
		t.Fatalf("generation %d", n)
	}
}

func FuzzAuthority(f *testing.F) {
	a, err := CreateAuthority(filepath.Join(f.TempDir(), "keys"), NewClusterID(), noon)
	fatal(f, err)
	fatal(f, a.Rotate(SigningKey, noon))
	f.Add(a.text)
	f.Fuzz(func(t *testing.T, text []byte) {
		if data, roots, err := parseAuthority(text); err == nil &&
			(len(roots) != len(data.Authorities) || len(data.Secrets) == 0) {
			t.Fatal("an authority without a certificate")
		}
	})
}

func FuzzChain(f *testing.F) {
	a, err := CreateAuthority(filepath.Join(f.TempDir(), "keys"), NewClusterID(), noon)
	fatal(f, err)
	_, chain, _ := issue(f, a, Host, "h1", noon)
	trust := trustOf(a)
	_, pin := a.Generation()
	f.Add(chain[0], a.Roots()[0].Raw)
	f.Fuzz(func(t *testing.T, leaf, root []byte) {
		p, err := trust.Verify([][]byte{leaf, root}, noon, Host)
		if err == nil && p.Name != "h1" {
			t.Fatalf("%+v", p)
		}
		_, _ = VerifyPinned([][]byte{leaf, root}, pin, noon)
	})
}
