// Package identity is who is who in a cluster: its authority (a certificate authority made once),
// certificates of hosts and clients, the tokens by which they join, the rights of clients, and the
// files in which each keeps what proves who it is. All of its cryptography is the standard
// library's: Ed25519, SHA-256, X.509, TLS 1.3.
//
// A certificate says by its URI whom it speaks of (Who); names of machines in it mean nothing. It
// lives for 90 days and is renewed by itself when two thirds are over (Keeper). What a process
// believes is a Trust: one or, while it rotates, two authorities, the cluster's id, and a list of
// serial numbers that are refused. Private keys never leave the machine that made them: a joiner
// sends a request (NewRequest), and the authority's own key stays in a folder that only its owner
// can enter (OpenAuthority).
//
// It speaks to nobody: package join does, over HTTPS, and package meta keeps what is known of
// tokens and members. Package peer makes the network's security out of a Keeper.
//
// Read identity.go first, then authority.go, verify.go, token.go, credential.go and keeper.go.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// ClusterID names a cluster for ever. It keeps hosts and clients of another one out.
type ClusterID [16]byte

// NewClusterID makes one at random.
func NewClusterID() (id ClusterID) {
	rand.Read(id[:])
	return id
}

// String is 32 hexadecimal digits.
func (id ClusterID) String() string { return hex.EncodeToString(id[:]) }

// ParseClusterID reads what String writes.
func ParseClusterID(text string) (id ClusterID, err error) {
	return id, parseHex("cluster id", text, id[:])
}

// MarshalText makes JSON show the digits.
func (id ClusterID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (id *ClusterID) UnmarshalText(b []byte) error {
	return parseHex("cluster id", string(b), id[:])
}

// Serial is the serial number of a certificate.
type Serial [16]byte

// newSerial makes one at random. Its first bit is 0, so that it is positive, and its second bit 1,
// so that it has one length on the wire.
func newSerial() (s Serial) {
	rand.Read(s[:])
	s[0] = s[0]&0x7f | 0x40
	return s
}

// String is 32 hexadecimal digits.
func (s Serial) String() string { return hex.EncodeToString(s[:]) }

// ParseSerial reads what String writes.
func ParseSerial(text string) (s Serial, err error) { return s, parseHex("serial", text, s[:]) }

// MarshalText makes JSON show the digits.
func (s Serial) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (s *Serial) UnmarshalText(b []byte) error { return parseHex("serial", string(b), s[:]) }

// Hash is a SHA-256 sum: of a public key (KeyHash), or of a token's secret.
type Hash [sha256.Size]byte

// String is 64 hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText makes JSON show the digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (h *Hash) UnmarshalText(b []byte) error { return parseHex("hash", string(b), h[:]) }

func parseHex(what, text string, to []byte) error {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(to) || strings.ToLower(text) != text {
		return errs.Newf(errs.Invalid, "identity", "", "%.64q is no %s: it has %d small hexadecimal "+
			"digits", text, what, 2*len(to))
	}
	copy(to, b)
	return nil
}

// Kind is what a certificate makes of its holder.
type Kind uint8

// The kinds. Values are stored: append, never renumber.
const (
	Host   Kind = iota + 1 // a machine of the cluster: it serves, and may do what clients may
	Client                 // it mounts or calls, within its Rights
)

// String is the word in URIs.
func (k Kind) String() string {
	switch k {
	case Host:
		return "host"
	case Client:
		return "client"
	}
	return "unknown"
}

// Valid tells whether it is one of the kinds.
func (k Kind) Valid() bool { return k == Host || k == Client }

// ParseKind reads what String writes.
func ParseKind(text string) (Kind, error) {
	for _, k := range []Kind{Host, Client} {
		if k.String() == text {
			return k, nil
		}
	}
	return 0, errs.Newf(errs.Invalid, "identity", "", "%.64q is neither host nor client", text)
}

// MarshalText makes JSON show the word.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (k *Kind) UnmarshalText(b []byte) (err error) {
	*k, err = ParseKind(string(b))
	return err
}

// NameMax is the length of the longest name of a host or client.
const NameMax = 63

// CheckName refuses what is no name of a host or client: 1 to NameMax small letters, digits, and
// - . _ between them. Such names are safe in URIs, file names and keys as they are.
func CheckName(name string) error {
	alnum := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	ok := len(name) >= 1 && len(name) <= NameMax && alnum(name[0]) && alnum(name[len(name)-1])
	for i := 0; ok && i < len(name); i++ {
		ok = alnum(name[i]) || strings.IndexByte("-._", name[i]) >= 0
	}
	if !ok {
		return errs.Newf(errs.Invalid, "identity", "", "%.80q is no name: take 1 to %d small letters, "+
			"digits and - . _, with a letter or digit at both ends", name, NameMax)
	}
	return nil
}

// Who is whom a certificate speaks of.
type Who struct {
	Cluster ClusterID
	Kind    Kind
	Name    string
}

const scheme = "sluice://"

// String is the URI: sluice://CLUSTER/host/NAME or sluice://CLUSTER/client/NAME.
func (w Who) String() string {
	return scheme + w.Cluster.String() + "/" + w.Kind.String() + "/" + w.Name
}

// ParseWho reads what String writes, and nothing else that means the same.
func ParseWho(uri string) (Who, error) {
	rest, ok := strings.CutPrefix(uri, scheme)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return Who{}, errs.Newf(errs.Invalid, "identity", "", "%.200q names nobody of a cluster", uri)
	}
	id, err := ParseClusterID(parts[0])
	if err != nil {
		return Who{}, err
	}
	kind, err := ParseKind(parts[1])
	if err == nil {
		err = CheckName(parts[2])
	}
	if err != nil {
		return Who{}, err
	}
	return Who{id, kind, parts[2]}, nil
}
