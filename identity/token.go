package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// Token is what a new host or client joins by. Its text, which people paste, is
//
//	sluice1.  and 96 small letters and digits: the base32 of
//
//	0     1        33   41      57        60
//	|kind |pin 32  |id  |secret |sum 3    |
//
// pin is the sum of the authority's key: by it the joiner knows whom it talks to before it sends
// anything. The secret is 16 random bytes; the cluster keeps its hash. The sum, of all before it,
// is there so that a letter that was lost or mistyped is told as that.
type Token struct {
	Kind   Kind
	Pin    Hash
	ID     uint64
	Secret [16]byte
}

const (
	tokenPrefix = "sluice1."
	tokenBytes  = 60
	tokenBody   = tokenBytes - 3
)

var tokenText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewToken makes one at random. Its id is never 0.
func NewToken(kind Kind, pin Hash) Token {
	t := Token{Kind: kind, Pin: pin}
	rand.Read(t.Secret[:])
	for t.ID == 0 {
		var b [8]byte
		rand.Read(b[:])
		t.ID = binary.BigEndian.Uint64(b[:])
	}
	return t
}

// String is the text. It holds the secret.
func (t *Token) String() string {
	b := make([]byte, 0, tokenBytes)
	b = append(b, byte(t.Kind))
	b = append(b, t.Pin[:]...)
	b = binary.BigEndian.AppendUint64(b, t.ID)
	b = append(b, t.Secret[:]...)
	sum := tokenSum(b)
	return tokenPrefix + tokenText.EncodeToString(append(b, sum[:]...))
}

func tokenSum(b []byte) (sum [3]byte) {
	full := sha256.Sum256(append([]byte("sluice token\x00"), b...))
	copy(sum[:], full[:])
	return sum
}

// ParseToken reads the text, in which large letters, and i, l and o in the place of digits, are
// forgiven. errs.Invalid says what is wrong with it.
func ParseToken(text string) (t Token, err error) {
	bad := func(format string, args ...any) (Token, error) {
		return Token{}, errs.Newf(errs.Invalid, "token", "", format, args...)
	}
	text = strings.ToLower(strings.TrimSpace(text))
	body, ok := strings.CutPrefix(text, tokenPrefix)
	switch {
	case !ok && strings.HasPrefix(text, "sluice") && strings.Contains(text, "."):
		return bad("it is of a version that this build does not know")
	case !ok:
		return bad("a token begins with %s", tokenPrefix)
	case len(body) != tokenText.EncodedLen(tokenBytes):
		return bad("it has %d letters behind %s, and %d are expected: a part is missing, or too much",
			len(body), tokenPrefix, tokenText.EncodedLen(tokenBytes))
	}
	body = strings.NewReplacer("o", "0", "i", "1", "l", "1").Replace(body)
	b, err := tokenText.DecodeString(body)
	if err != nil || len(b) != tokenBytes {
		return bad("it has letters that no token has")
	}
	if tokenSum(b[:tokenBody]) != [3]byte(b[tokenBody:]) {
		return bad("its letters do not fit each other: copy it anew")
	}
	t = Token{Kind: Kind(b[0]), Pin: Hash(b[1:33]), ID: binary.BigEndian.Uint64(b[33:]),
		Secret: [16]byte(b[41:57])}
	if !t.Kind.Valid() || t.ID == 0 {
		return bad("it is neither for a host nor for a client")
	}
	return t, nil
}

// SecretHash is what the cluster keeps of a token's secret.
func (t *Token) SecretHash() Hash { return HashSecret(t.ID, t.Secret) }

// HashSecret is SecretHash for who was sent the parts.
func HashSecret(id uint64, secret [16]byte) Hash {
	b := binary.BigEndian.AppendUint64([]byte("sluice token secret\x00"), id)
	return sha256.Sum256(append(b, secret[:]...))
}

// Equal compares without telling by its time where two sums differ.
func (h Hash) Equal(other Hash) bool { return subtle.ConstantTimeCompare(h[:], other[:]) == 1 }
