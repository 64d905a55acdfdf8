package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Credential is what a host or client proves itself by, and what it needs to find its cluster: one
// JSON file, readable by its owner alone. The private key was made here and is nowhere else.
//
// It does not change: a renewed one is another Credential.
type Credential struct {
	Format      int       `json:"format"`
	Cluster     ClusterID `json:"cluster"`
	Kind        Kind      `json:"kind"`
	Name        string    `json:"name"`
	Roles       Roles     `json:"roles,omitempty"`     // of a host: what it was told when it joined
	Rights      *Rights   `json:"rights,omitempty"`    // of a client: likewise
	Plaintext   bool      `json:"plaintext,omitempty"` // servers authenticate, and do not encrypt
	Addresses   []string  `json:"addresses"`           // of the cluster's metadata services
	Join        []string  `json:"join"`                // where it is renewed
	Key         []byte    `json:"key"`                 // the seed of an Ed25519 key
	Certificate [][]byte  `json:"certificate"`         // its own first, then what others need besides
	Authorities [][]byte  `json:"authorities"`
	Token       uint64    `json:"token,omitempty"` // the id of that by which it joined; 0: was renewed

	peer  Peer
	roots []*x509.Certificate
	pair  *tls.Certificate
}

const credentialFormat = 1

// Bounds of lists in grants and credentials.
const (
	addressesMax = 64
	addressMax   = 255
	rootsMax     = 2
)

// Grant is what an authority gives to who joins or is renewed.
type Grant struct {
	Cluster     ClusterID `json:"cluster"`
	Kind        Kind      `json:"kind"`
	Name        string    `json:"name"`
	Roles       Roles     `json:"roles,omitempty"`
	Rights      *Rights   `json:"rights,omitempty"`
	Plaintext   bool      `json:"plaintext,omitempty"`
	Addresses   []string  `json:"addresses"`
	Join        []string  `json:"join"`
	Certificate [][]byte  `json:"certificate"`
	Authorities [][]byte  `json:"authorities"`
	Now         time.Time `json:"now"` // by the clock of who gives it
}

// NewCredential is a grant with the key that it was asked for with. errs.Invalid: they do not
// belong together.
func NewCredential(key ed25519.PrivateKey, g *Grant) (*Credential, error) {
	c := &Credential{Format: credentialFormat, Cluster: g.Cluster, Kind: g.Kind, Name: g.Name,
		Roles: g.Roles, Rights: g.Rights, Plaintext: g.Plaintext, Addresses: g.Addresses,
		Join: g.Join, Key: key.Seed(), Certificate: g.Certificate, Authorities: g.Authorities}
	if err := c.check(); err != nil {
		return nil, errs.Wrap("identity.NewCredential", g.Name, err)
	}
	return c, nil
}

// check holds the parts against each other. A certificate that has run out is no reason to refuse:
// who wants to use it is told.
func (c *Credential) check() error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "", "", format, args...)
	}
	switch {
	case c.Format != credentialFormat:
		return errs.Newf(errs.Version, "", "", "format %d, this build knows %d", c.Format,
			credentialFormat)
	case len(c.Key) != ed25519.SeedSize:
		return bad("its key has %d bytes", len(c.Key))
	case len(c.Authorities) < 1 || len(c.Authorities) > rootsMax:
		return bad("%d authorities", len(c.Authorities))
	case c.Kind == Client && c.Rights == nil:
		return bad("a client without rights")
	}
	if c.Rights != nil {
		if err := c.Rights.Check(); err != nil {
			return err
		}
	}
	for _, list := range [][]string{c.Addresses, c.Join} {
		if err := checkAddresses(list); err != nil {
			return err
		}
	}
	var roots []*x509.Certificate
	for _, der := range c.Authorities {
		root, err := parseRoot(der, c.Cluster)
		if err != nil {
			return err
		}
		roots = append(roots, root)
	}
	chain, err := parseChain(c.Certificate)
	if err != nil {
		return bad("%w", err)
	}
	peer, err := verifyLeaf(chain, roots, chain[0].NotAfter)
	if err != nil {
		return bad("%w", err)
	}
	if peer.Who != (Who{c.Cluster, c.Kind, c.Name}) {
		return bad("its certificate is of %s", peer.Who)
	}
	key := ed25519.NewKeyFromSeed(c.Key)
	if !key.Public().(ed25519.PublicKey).Equal(chain[0].PublicKey) {
		return bad("its key and its certificate do not belong together")
	}
	c.peer, c.roots = peer, roots
	c.pair = &tls.Certificate{Certificate: c.Certificate, PrivateKey: key, Leaf: chain[0]}
	return nil
}

func checkAddresses(list []string) error {
	if len(list) > addressesMax {
		return errs.Newf(errs.Invalid, "", "", "%d addresses, at most %d", len(list), addressesMax)
	}
	for _, a := range list {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" || len(a) > addressMax {
			return errs.Newf(errs.Invalid, "", "", "%.80q is no address: HOST:PORT", a)
		}
	}
	return nil
}

// Peer is who this credential makes of its holder, and from when to when.
func (c *Credential) Peer() Peer { return c.peer }

// Roots are the authorities that it believes.
func (c *Credential) Roots() []*x509.Certificate { return c.roots }

// TLS is what it shows to others.
func (c *Credential) TLS() *tls.Certificate { return c.pair }

// Current tells whether its certificate is by the first of its authorities, the current one.
func (c *Credential) Current() bool {
	return c.pair.Leaf.CheckSignatureFrom(c.roots[0]) == nil
}

// Expired tells whether its certificate has run out; nobody believes it then, and it can only join
// again.
func (c *Credential) Expired(now time.Time) bool { return now.After(c.peer.NotAfter.Add(Skew)) }

// RenewAt is when it is to be renewed: when two thirds of its life are over, and up to a day
// earlier, so that those who joined together are not renewed together.
func (c *Credential) RenewAt() time.Time {
	s := c.peer.Serial
	early := time.Duration(int(s[14])<<8|int(s[15])) * (24 * time.Hour) / (1 << 16)
	return c.peer.NotAfter.Add(-Life / 3).Add(-early)
}

// encode is the file's text.
func (c *Credential) encode() ([]byte, error) {
	text, err := json.MarshalIndent(c, "", "  ")
	return append(text, '\n'), err
}

func parseCredential(text []byte) (*Credential, error) {
	c := &Credential{}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(c); err != nil {
		return nil, errs.Newf(errs.Corrupt, "", "", "it is no credential: %w", err)
	}
	return c, c.check()
}

// ReadCredential reads a file. It is refused where others could read or replace it (errs.Perm).
func ReadCredential(file string) (*Credential, error) {
	c, _, err := readCredential(file)
	return c, err
}

func readCredential(file string) (*Credential, []byte, error) {
	const op = "identity.ReadCredential"
	text, err := readPrivate(op, file)
	if err != nil {
		return nil, nil, err
	}
	c, err := parseCredential(text)
	if err != nil {
		return nil, nil, errs.Wrap(op, file, err)
	}
	return c, text, nil
}

// Write replaces a file by the credential, whole and durably. The folder is made, for the owner
// alone, if it is not there.
func (c *Credential) Write(file string) error {
	const op = "identity.WriteCredential"
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return errs.Wrap(op, file, err)
	}
	text, err := c.encode()
	if err != nil {
		return errs.Wrap(op, file, err)
	}
	return writePrivate(op, file, text)
}
