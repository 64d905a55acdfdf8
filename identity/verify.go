package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Times of certificates.
const (
	// Life is how long certificates of hosts and clients are valid.
	Life = 90 * 24 * time.Hour

	// backdate lets a certificate begin before it was made, so that hosts whose clocks are late by a
	// day and more believe it at once.
	backdate = 48 * time.Hour

	// Skew is how far, at both ends of a certificate's life, clocks may be apart.
	Skew = 5 * time.Minute
)

// chainMax bounds the certificates that a peer may show: its own, one that joins two authorities,
// and two authorities. certMax is for the bytes of one.
const (
	chainMax = 4
	certMax  = 4 << 10
)

// Peer is whom a certificate that was verified speaks of.
type Peer struct {
	Who
	Serial    Serial
	NotBefore time.Time
	NotAfter  time.Time
}

// Trust is whom a process believes. It changes while the process runs: authorities rotate, and
// certificates are denied. Safe for concurrent use.
type Trust struct {
	cluster ClusterID

	mu      sync.RWMutex
	roots   []*x509.Certificate
	denied  map[Serial]struct{}
	changed chan struct{}
}

// NewTrust makes one that denies nobody.
func NewTrust(cluster ClusterID, roots ...*x509.Certificate) *Trust {
	return &Trust{cluster: cluster, roots: roots, changed: make(chan struct{})}
}

// Cluster is the cluster whose members are believed.
func (t *Trust) Cluster() ClusterID { return t.cluster }

// SetRoots changes the authorities that are believed.
func (t *Trust) SetRoots(roots []*x509.Certificate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.EqualFunc(t.roots, roots, (*x509.Certificate).Equal) {
		return
	}
	t.roots = slices.Clone(roots)
	t.wakeLocked()
}

// SetDenied changes the list of certificates that are refused.
func (t *Trust) SetDenied(serials []Serial) {
	denied := make(map[Serial]struct{}, len(serials))
	for _, s := range serials {
		denied[s] = struct{}{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.denied = denied
	t.wakeLocked()
}

func (t *Trust) wakeLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Changed is closed when authorities or denials change. Who has connections open looks then which
// of them are Denied.
func (t *Trust) Changed() <-chan struct{} {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.changed
}

// Denied tells whether a certificate is on the list of those that are refused.
func (t *Trust) Denied(s Serial) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, yes := t.denied[s]
	return yes
}

// Roots are the authorities that are believed.
func (t *Trust) Roots() []*x509.Certificate {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.roots
}

// Verify tells who shows a chain of certificates, its own first; the holder must be of one of the
// kinds. Each reason to refuse is errs.Perm, and says what it is.
func (t *Trust) Verify(chain [][]byte, now time.Time, kinds ...Kind) (Peer, error) {
	certs, err := parseChain(chain)
	if err != nil {
		return Peer{}, err
	}
	p, err := verifyLeaf(certs, t.Roots(), now)
	switch {
	case p.Kind.Valid() && p.Cluster != t.cluster: // whatever else is wrong, that is why
		return Peer{}, refused("%s %s belongs to another cluster: it says that it is of %s, and this "+
			"side is of %s", p.Kind, p.Name, p.Cluster, t.cluster)
	case err != nil:
		return Peer{}, err
	case !slices.Contains(kinds, p.Kind):
		return Peer{}, refused("%s is a %s, and that is not asked for here", p.Name, p.Kind)
	case t.Denied(p.Serial):
		return Peer{}, refused("the certificate of %s %s was revoked", p.Kind, p.Name)
	}
	return p, nil
}

func refused(format string, args ...any) error {
	return errs.Newf(errs.Perm, "identity.Verify", "", format, args...)
}

// parseChain reads what a peer shows, within bounds.
func parseChain(chain [][]byte) ([]*x509.Certificate, error) {
	if len(chain) == 0 || len(chain) > chainMax {
		return nil, refused("%d certificates: 1 to %d are expected", len(chain), chainMax)
	}
	certs := make([]*x509.Certificate, len(chain))
	for i, der := range chain {
		if len(der) > certMax {
			return nil, refused("a certificate of %d bytes, at most %d", len(der), certMax)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, refused("a certificate that cannot be read: %w", err)
		}
		certs[i] = c
	}
	return certs, nil
}

// verifyLeaf holds the first certificate of a chain against authorities: that it was signed by one,
// or by one that an authority has signed, that now is within its life, and that it says whom it
// speaks of.
func verifyLeaf(certs, roots []*x509.Certificate, now time.Time) (Peer, error) {
	leaf := certs[0]
	p := Peer{NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter}
	if leaf.IsCA || len(leaf.URIs) != 1 {
		return p, refused("the certificate speaks of no host or client")
	}
	who, err := ParseWho(leaf.URIs[0].String())
	if err != nil {
		return p, refused("the certificate speaks of no host or client: %w", err)
	}
	number := leaf.SerialNumber.Bytes()
	if len(number) != len(p.Serial) {
		return p, refused("the certificate has a serial number of %d bytes", len(number))
	}
	p.Who, p.Serial = who, Serial(number)
	at := now
	switch {
	case now.Before(leaf.NotBefore.Add(-Skew)):
		return p, refused("the certificate of %s begins at %s, and here it is %s: see which clock is "+
			"wrong", who.Name, stamp(leaf.NotBefore), stamp(now))
	case now.After(leaf.NotAfter.Add(Skew)):
		return p, refused("the certificate of %s has ended at %s, and here it is %s: it has expired, or "+
			"a clock is wrong", who.Name, stamp(leaf.NotAfter), stamp(now))
	case now.Before(leaf.NotBefore):
		at = leaf.NotBefore
	case now.After(leaf.NotAfter):
		at = leaf.NotAfter
	}
	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(),
		CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, r := range roots {
		opts.Roots.AddCert(r)
	}
	for _, c := range certs[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(opts); err != nil {
		return p, refused("the certificate of %s is not by the authority of this cluster: %w", who.Name,
			err)
	}
	return p, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// KeyHash is the sum of a certificate's public key. That of an authority is what tokens pin.
func KeyHash(c *x509.Certificate) Hash { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// VerifyPinned is what a joiner does, who knows nothing of a cluster but the sum of its
// authority's key: among the certificates that a server shows there must be an authority with that
// key, and the first certificate must be one of a host by it. It returns who the server is.
func VerifyPinned(chain [][]byte, pin Hash, now time.Time) (Peer, error) {
	certs, err := parseChain(chain)
	if err != nil {
		return Peer{}, err
	}
	var roots []*x509.Certificate
	for _, c := range certs[1:] {
		if c.IsCA && KeyHash(c) == pin {
			roots = append(roots, c)
		}
	}
	if len(roots) == 0 {
		return Peer{}, refused("the server does not show the authority that the token names: it is of " +
			"another cluster, or somebody pretends to be it")
	}
	p, err := verifyLeaf(certs, roots, now)
	if err == nil && p.Kind != Host {
		err = refused("the server is a %s", p.Kind)
	}
	return p, err
}
