package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// rootLife is how long an authority's own certificate lasts.
const rootLife = 20 * 365 * 24 * time.Hour

// authorityFile lies in the authority's folder, with a lock beside it.
const authorityFile = "authority.json"

// SecretBytes is the length of a cluster secret.
const SecretBytes = 32

// Authority is a cluster's certificate authority, with its secret: what the keys of capabilities
// are derived from. It is one file in a folder of its own, which only the owner can enter:
//
//	{"format": 1, "cluster": "32 digits",
//	 "authorities": [{"generation": 2, "made": "...", "key": "base64", "certificate": "base64",
//	                  "link": "base64"},
//	                 {"generation": 1, "made": "...", "certificate": "base64"}],
//	 "secrets": [{"generation": 1, "made": "...", "secret": "base64"}]}
//
// The first of each is current; a second one is that before it, which is valid until it is retired.
// An authority that is not current has no key any more. link is the current authority's key,
// certified by the one before: holders of certificates show it, so that those who have not heard of
// the new authority believe it. Everything that changes does so by one replacement of the file, and
// an attempt that was interrupted can be repeated.
//
// Safe for concurrent use.
type Authority struct {
	dir string

	mu    sync.RWMutex
	file  authorityData
	text  []byte // of the file
	roots []*x509.Certificate
	key   ed25519.PrivateKey
}

// authorityData is the file.
type authorityData struct {
	Format      int            `json:"format"`
	Cluster     ClusterID      `json:"cluster"`
	Authorities []authorityKey `json:"authorities"`
	Secrets     []ClusterKey   `json:"secrets"`
}

type authorityKey struct {
	Generation  uint64    `json:"generation"`
	Made        time.Time `json:"made"`
	Key         []byte    `json:"key,omitempty"` // the seed of the current one's
	Certificate []byte    `json:"certificate"`
	Link        []byte    `json:"link,omitempty"`
}

// ClusterKey is a generation of the cluster's secret.
type ClusterKey struct {
	Generation uint64    `json:"generation"`
	Made       time.Time `json:"made"`
	Secret     []byte    `json:"secret"`
}

// Fingerprint tells secrets apart without telling them.
func (k *ClusterKey) Fingerprint() Hash {
	return sha256.Sum256(append([]byte("sluice secret\x00"), k.Secret...))
}

const authorityFormat = 1

// HasAuthority tells whether there is an authority in a folder.
func HasAuthority(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, authorityFile))
	return err == nil
}

// CreateAuthority makes the authority of a new cluster, in a folder that it makes if it is not
// there. errs.Exists: there is one already.
func CreateAuthority(dir string, cluster ClusterID, now time.Time) (*Authority, error) {
	const op = "identity.CreateAuthority"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errs.Wrap(op, dir, err)
	}
	if err := checkFolder(op, dir); err != nil {
		return nil, err
	}
	unlock, err := lockFile(op, filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if HasAuthority(dir) {
		return nil, errs.Newf(errs.Exists, op, dir, "there is an authority in it")
	}
	key := NewKey()
	root, err := newRoot(cluster, key, 1, now)
	if err != nil {
		return nil, errs.Wrap(op, dir, err)
	}
	a := &Authority{dir: dir}
	return a, a.save(op, authorityData{Format: authorityFormat, Cluster: cluster,
		Authorities: []authorityKey{{Generation: 1, Made: now.UTC(), Key: key.Seed(),
			Certificate: root}},
		Secrets: []ClusterKey{newClusterKey(1, now)}})
}

func newClusterKey(generation uint64, now time.Time) ClusterKey {
	k := ClusterKey{Generation: generation, Made: now.UTC(), Secret: make([]byte, SecretBytes)}
	rand.Read(k.Secret)
	return k
}

// OpenAuthority reads the authority in a folder. It is refused where others could read or replace
// it (errs.Perm).
func OpenAuthority(dir string) (*Authority, error) {
	a := &Authority{dir: dir}
	_, err := a.Reload()
	return a, err
}

// Reload reads the file again, which another process may have replaced.
func (a *Authority) Reload() (changed bool, err error) {
	const op = "identity.OpenAuthority"
	if err := checkFolder(op, a.dir); err != nil {
		return false, err
	}
	text, err := readPrivate(op, a.path())
	if err != nil {
		return false, err
	}
	a.mu.RLock()
	same := bytes.Equal(text, a.text)
	a.mu.RUnlock()
	if same {
		return false, nil
	}
	return true, errs.Wrap(op, a.path(), a.take(text))
}

func (a *Authority) path() string { return filepath.Join(a.dir, authorityFile) }

// take makes the content of a file current.
func (a *Authority) take(text []byte) error {
	f, roots, err := parseAuthority(text)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.text != nil && a.file.Cluster != f.Cluster {
		return errs.Newf(errs.Corrupt, "", "", "it is of another cluster now")
	}
	a.file, a.roots, a.text = f, roots, text
	a.key = ed25519.NewKeyFromSeed(f.Authorities[0].Key)
	return nil
}

// parseAuthority reads the file, and holds its parts against each other.
func parseAuthority(text []byte) (f authorityData, roots []*x509.Certificate, err error) {
	bad := func(format string, args ...any) (authorityData, []*x509.Certificate, error) {
		return f, nil, errs.Newf(errs.Corrupt, "", "", format, args...)
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return bad("it cannot be read: %w", err)
	}
	if f.Format != authorityFormat {
		return f, nil, errs.Newf(errs.Version, "", "", "format %d, this build knows %d", f.Format,
			authorityFormat)
	}
	if n := len(f.Authorities); n < 1 || n > 2 || len(f.Authorities[0].Key) != ed25519.SeedSize {
		return bad("it has %d authorities, or the first has no key", n)
	}
	if n := len(f.Secrets); n < 1 || n > 2 {
		return bad("it has %d secrets", n)
	}
	for i := range f.Secrets {
		if len(f.Secrets[i].Secret) != SecretBytes || f.Secrets[i].Generation == 0 {
			return bad("a secret of %d bytes", len(f.Secrets[i].Secret))
		}
	}
	for _, k := range f.Authorities {
		root, err := parseRoot(k.Certificate, f.Cluster)
		if err != nil || k.Generation == 0 {
			return bad("authority %d: %v", k.Generation, err)
		}
		roots = append(roots, root)
	}
	key := ed25519.NewKeyFromSeed(f.Authorities[0].Key)
	if !key.Public().(ed25519.PublicKey).Equal(roots[0].PublicKey) {
		return bad("its key and its certificate do not belong together")
	}
	return f, roots, nil
}

// save writes the file, and makes it current.
func (a *Authority) save(op string, f authorityData) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return errs.Wrap(op, a.path(), err)
	}
	text = append(text, '\n')
	if _, _, err := parseAuthority(text); err != nil { // never write what cannot be read
		return errs.Wrap(op, a.path(), err)
	}
	if err := writePrivate(op, a.path(), text); err != nil {
		return err
	}
	return errs.Wrap(op, a.path(), a.take(text))
}

// Cluster is the cluster's id.
func (a *Authority) Cluster() ClusterID {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.file.Cluster
}

// Roots are the certificates of the authorities that are valid, the current one first.
func (a *Authority) Roots() []*x509.Certificate {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Clone(a.roots)
}

// Generation is the number of the current authority; Pin is what tokens carry: the sum of its key.
func (a *Authority) Generation() (number uint64, pin Hash) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.file.Authorities[0].Generation, KeyHash(a.roots[0])
}

// Secrets are the cluster's secrets that are valid, the current one first. They are the caller's to
// read only.
func (a *Authority) Secrets() []ClusterKey {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Clone(a.file.Secrets)
}

// KeyKind is one of a cluster's keys.
type KeyKind uint8

// The keys. Values are stored: append, never renumber.
const (
	SigningKey KeyKind = iota + 1 // the authority's, that certificates are signed with
	SecretKey                     // that the keys of capabilities are derived from
)

// Valid tells whether it is one of the kinds.
func (k KeyKind) Valid() bool { return k == SigningKey || k == SecretKey }

// String is for people.
func (k KeyKind) String() string {
	switch k {
	case SigningKey:
		return "authority"
	case SecretKey:
		return "secret"
	}
	return "unknown"
}

// Rotate makes a new key; the one before stays valid until Retire. errs.Busy: two are valid
// already.
func (a *Authority) Rotate(what KeyKind, now time.Time) error {
	return a.change("identity.Rotate", func(f *authorityData) error {
		n := len(f.Authorities)
		if what == SecretKey {
			n = len(f.Secrets)
		}
		if n > 1 {
			return errs.Newf(errs.Busy, "", "", "two keys are valid already: retire the older one first")
		}
		if what == SecretKey {
			f.Secrets = []ClusterKey{newClusterKey(f.Secrets[0].Generation+1, now), f.Secrets[0]}
			return nil
		}
		return f.rotate(now)
	})
}

// Retire ends the key before the current one. It does nothing where there is none.
func (a *Authority) Retire(what KeyKind) error {
	return a.change("identity.Retire", func(f *authorityData) error {
		if what == SecretKey {
			f.Secrets = f.Secrets[:1]
			return nil
		}
		f.Authorities = f.Authorities[:1]
		f.Authorities[0].Link = nil
		return nil
	})
}

// change reads the file, changes it and writes it, while others that want to do so wait.
func (a *Authority) change(op string, fn func(f *authorityData) error) error {
	unlock, err := lockFile(op, filepath.Join(a.dir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := a.Reload(); err != nil {
		return err
	}
	a.mu.RLock()
	f := a.file
	f.Authorities, f.Secrets = slices.Clone(f.Authorities), slices.Clone(f.Secrets)
	a.mu.RUnlock()
	if err := fn(&f); err != nil {
		return errs.Wrap(op, a.path(), err)
	}
	return a.save(op, f)
}

func (f *authorityData) rotate(now time.Time) error {
	was := f.Authorities[0]
	signer, err := parseRoot(was.Certificate, f.Cluster)
	if err != nil {
		return err
	}
	key := NewKey()
	next := authorityKey{Generation: was.Generation + 1, Made: now.UTC(), Key: key.Seed()}
	next.Certificate, err = newRoot(f.Cluster, key, next.Generation, now)
	if err != nil {
		return err
	}
	t := rootTemplate(f.Cluster, next.Generation, now)
	t.MaxPathLen, t.MaxPathLenZero = 0, true
	next.Link, err = x509.CreateCertificate(rand.Reader, t, signer, key.Public(),
		ed25519.NewKeyFromSeed(was.Key))
	if err != nil {
		return err
	}
	was.Key, was.Link = nil, nil
	f.Authorities = []authorityKey{next, was}
	return nil
}

// rootTemplate is an authority's own certificate. It says which cluster it is the authority of, and
// may have one other authority below it: the next one.
func rootTemplate(cluster ClusterID, generation uint64, now time.Time) *x509.Certificate {
	serial := newSerial()
	name := pkix.Name{CommonName: "sluice " + cluster.String(),
		SerialNumber: new(big.Int).SetUint64(generation).String()}
	return &x509.Certificate{SerialNumber: new(big.Int).SetBytes(serial[:]), Subject: name,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(rootLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 1, KeyUsage: x509.KeyUsageCertSign,
		URIs: []*url.URL{{Scheme: "sluice", Host: cluster.String(), Path: "/authority"}}}
}

func newRoot(cluster ClusterID, key ed25519.PrivateKey, generation uint64, now time.Time) (
	[]byte, error) {
	t := rootTemplate(cluster, generation, now)
	return x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
}

// parseRoot reads an authority's certificate, which must be that of the cluster.
func parseRoot(der []byte, cluster ClusterID) (*x509.Certificate, error) {
	if len(der) > certMax {
		return nil, errs.Newf(errs.Invalid, "identity", "", "a certificate of %d bytes", len(der))
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errs.New(errs.Invalid, "identity", "", err)
	}
	_, ok := c.PublicKey.(ed25519.PublicKey)
	want := scheme + cluster.String() + "/authority"
	if !ok || !c.IsCA || len(c.URIs) != 1 || c.URIs[0].String() != want {
		return nil, errs.Newf(errs.Invalid, "identity", "", "no authority of cluster %s", cluster)
	}
	return c, nil
}

// NewCertificate is the serial number and the end of a certificate that is to be issued: they are
// written down before it is made, so that every certificate can be denied.
type NewCertificate struct {
	Serial   Serial
	NotAfter time.Time
}

// Plan chooses them. Dates of certificates are whole seconds.
func Plan(now time.Time) NewCertificate {
	return NewCertificate{newSerial(), now.Add(Life).UTC().Truncate(time.Second)}
}

// Issue makes the certificate of who has asked, and returns it with what its holder shows besides:
// the link between two authorities while they rotate.
func (a *Authority) Issue(r *Request, kind Kind, name string, c NewCertificate, now time.Time) (
	chain [][]byte, err error) {
	const op = "identity.Issue"
	if err := CheckName(name); err != nil || !kind.Valid() {
		return nil, errs.Wrap(op, name, errors.Join(err, errs.Invalid))
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	t := &x509.Certificate{SerialNumber: new(big.Int).SetBytes(c.Serial[:]),
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdate), NotAfter: c.NotAfter,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{{Scheme: "sluice", Host: a.file.Cluster.String(),
			Path: "/" + kind.String() + "/" + name}}}
	if kind == Host {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		t.DNSNames = hostNames(a.file.Cluster, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.roots[0], r.key, a.key)
	if err != nil {
		return nil, errs.Wrap(op, name, err)
	}
	chain = [][]byte{der}
	if link := a.file.Authorities[0].Link; link != nil {
		chain = append(chain, link)
	}
	return chain, nil
}

// Serve makes a certificate with a key of its own, for a server that has the authority at hand and
// to which others come that know nothing but a token: it shows the authorities as well.
func (a *Authority) Serve(name string, c NewCertificate, now time.Time) (*tls.Certificate, error) {
	key := NewKey()
	chain, err := a.Issue(&Request{key.Public().(ed25519.PublicKey)}, Host, name, c, now)
	if err != nil {
		return nil, err
	}
	for _, root := range a.Roots() {
		chain = append(chain, root.Raw)
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key}, nil
}
