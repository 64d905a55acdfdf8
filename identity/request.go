package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"

	"github.com/sluice-storage/sluice/errs"
)

// RequestMax bounds a request, in bytes. One is about 120 bytes long.
const RequestMax = 1 << 10

// NewKey makes a private key, which stays where it is made.
func NewKey() ed25519.PrivateKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic("identity: no randomness: " + err.Error()) // crypto/rand ends the process before
	}
	return key
}

// NewRequest asks for a certificate of a key, and proves that who asks has it (PKCS #10). It says
// nothing else: the authority knows what its holder becomes.
func NewRequest(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	return der, errs.Wrap("identity.NewRequest", "", err)
}

// Request is one that was verified.
type Request struct{ key ed25519.PublicKey }

// ParseRequest reads what NewRequest makes. errs.Invalid: it is not well formed, its signature is
// wrong, or its key is of another sort.
func ParseRequest(der []byte) (*Request, error) {
	bad := func(format string, args ...any) (*Request, error) {
		return nil, errs.Newf(errs.Invalid, "identity.ParseRequest", "", format, args...)
	}
	if len(der) > RequestMax {
		return bad("a request of %d bytes, at most %d", len(der), RequestMax)
	}
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return bad("it cannot be read: %w", err)
	}
	key, ok := r.PublicKey.(ed25519.PublicKey)
	if !ok {
		return bad("its key is none of Ed25519")
	}
	if err := r.CheckSignature(); err != nil {
		return bad("its signature is wrong: %w", err)
	}
	return &Request{key}, nil
}

// KeyHash is the sum of its public key, as KeyHash is of a certificate's.
func (r *Request) KeyHash() Hash {
	der, err := x509.MarshalPKIXPublicKey(r.key)
	if err != nil {
		panic("identity: an Ed25519 key that cannot be written: " + err.Error())
	}
	return sha256.Sum256(der)
}

// FormatSeed writes a private key down, and ParseSeed reads it.
func FormatSeed(key ed25519.PrivateKey) string { return hex.EncodeToString(key.Seed()) }

// ParseSeed reads what FormatSeed writes.
func ParseSeed(text string) (ed25519.PrivateKey, bool) {
	seed, err := hex.DecodeString(text)
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, false
	}
	return ed25519.NewKeyFromSeed(seed), true
}
