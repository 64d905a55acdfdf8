package fabric

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// Hello is what the two sides tell each other before anything else. Providers draw it in bytes.
type Hello struct {
	Version    uint16
	Features   uint16   // of the layer above; the provider passes them on
	MaxMessage uint32   // the largest Send that the sender of this hello accepts
	RecvDepth  uint32   // how many receives it will keep posted at the start (credits)
	Identity   uint64   // who it says it is; Peer.Proof tells whether it is proved
	Token      [32]byte // a dialler's: see Tokens; a listener's answer is the provider's to fill in
}

// HelloVersion is the version spoken by this build. Majors must match; there is one so far.
const HelloVersion = 1

// CheckVersion refuses a peer that speaks another version with errs.Version, and says which side is
// to be renewed.
func CheckVersion(theirs uint16) error {
	if theirs == HelloVersion {
		return nil
	}
	return errs.Newf(errs.Version, "fabric", "hello", "the peer speaks version %d of the network, "+
		"this side %d: %s", theirs, HelloVersion, wire.Remedy(int64(theirs), HelloVersion))
}

// Proof is how a peer's Name is known.
type Proof uint8

// The proofs. Above ProofNone the Name is the peer's and, except with ProofSecret, of no other
// peer.
const (
	ProofNone   Proof = iota // nobody asked: loopback, or a network that is trusted as a whole
	ProofHost                // the kernel of this host says that it is Name: "uid 1000 pid 17"
	ProofSecret              // it knows the cluster's secret; all peers that do have the same Name
	ProofToken               // it showed a one-time token, which was issued to Name
	ProofFrames              // its certificate says Name, and every frame is authenticated
	ProofTLS                 // its certificate says Name, and everything is encrypted
)

func (p Proof) String() string {
	switch p {
	case ProofNone:
		return "none"
	case ProofHost:
		return "host"
	case ProofSecret:
		return "secret"
	case ProofToken:
		return "token"
	case ProofFrames:
		return "frames"
	case ProofTLS:
		return "tls"
	}
	return "unknown"
}

// Peer is the other side of an endpoint.
type Peer struct {
	Hello
	Proof Proof
	Name  string // empty with ProofNone, and for a dialler whose listener only knew its token

	// Recheck tells whether what the peer has shown is still believed: nil, or why it is not. It is
	// asked when that may have changed, not for every request. nil: nothing can change it.
	Recheck func() error
}

// Tokens binds endpoints of one provider to peers that were authenticated by another one: a peer
// that is authenticated over TLS is issued a token there and dials here with it in its hello. A
// token is valid for one connection and for a limited time. The listener proves in its answer that
// it knew the token before (see TokenAnswer), so that both sides are bound. The domain of a
// listener asks for tokens when it was opened with a Tokens. Safe for concurrent use.
type Tokens struct {
	limit int

	mu     sync.Mutex
	issued map[[32]byte]issue // by the token's SHA-256, so that the time of a lookup reveals nothing
}

type issue struct {
	peer Peer // whom it was issued to: Name and Recheck
	ends time.Time
}

// NewTokens holds at most limit tokens that were issued and not used.
func NewTokens(limit int) *Tokens {
	return &Tokens{limit: limit, issued: map[[32]byte]issue{}}
}

// Issue makes a token for a peer of a name: errs.Again when too many are unused.
func (t *Tokens) Issue(name string, life time.Duration) ([32]byte, error) {
	return t.IssueTo(Peer{Name: name}, life)
}

// IssueTo is Issue for a peer that another connection knows: who shows the token has its Name, and
// is believed as long as that peer is (Recheck).
func (t *Tokens) IssueTo(peer Peer, life time.Duration) ([32]byte, error) {
	var token [32]byte
	_, _ = rand.Read(token[:]) // never fails
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.issued) >= t.limit {
		for key, i := range t.issued {
			if now.After(i.ends) {
				delete(t.issued, key)
			}
		}
		if len(t.issued) >= t.limit {
			return token, errs.Newf(errs.Again, "fabric.Tokens", peer.Name, "%d tokens are unused",
				len(t.issued))
		}
	}
	t.issued[sha256.Sum256(token[:])] = issue{peer, now.Add(life)}
	return token, nil
}

// Admit is called by a provider's listener that has read a hello. It returns the peer and the Token
// of the answer. Without a Tokens (nil) every peer is admitted, and none is known. A token that was
// not issued, was used or is too old is errs.Perm.
func (t *Tokens) Admit(h Hello) (peer Peer, answer [32]byte, err error) {
	if t == nil {
		return Peer{Hello: h}, answer, nil
	}
	key := sha256.Sum256(h.Token[:])
	t.mu.Lock()
	i, ok := t.issued[key]
	delete(t.issued, key)
	t.mu.Unlock()
	if !ok || time.Now().After(i.ends) {
		return Peer{Hello: h}, answer, errs.Newf(errs.Perm, "fabric.Accept", "hello",
			"the token is unknown, was used before or is too old")
	}
	p := Peer{Hello: h, Proof: ProofToken, Name: i.peer.Name, Recheck: i.peer.Recheck}
	return p, TokenAnswer(h.Token), nil
}

// TokenAnswer is what a listener that knows a token answers.
func TokenAnswer(token [32]byte) [32]byte {
	return sha256.Sum256(append([]byte("sluice listener\x00"), token[:]...))
}

// CheckAnswer is called by a provider's dialler that has read the listener's hello: a dialler that
// showed a token refuses a listener that did not know it with errs.Perm.
func CheckAnswer(mine, theirs *Hello) error {
	if mine.Token == ([32]byte{}) {
		return nil
	}
	want := TokenAnswer(mine.Token)
	if subtle.ConstantTimeCompare(want[:], theirs.Token[:]) != 1 {
		return errs.Newf(errs.Perm, "fabric.Dial", "hello", "the listener does not know the token")
	}
	return nil
}

// RefusalKind is the kind that a listener tells a peer that it refuses.
func RefusalKind(err error) errs.Kind {
	switch kind := errs.KindOf(err); kind {
	case errs.Perm, errs.Again, errs.Version:
		return kind
	case errs.Forged: // an invalid capability or signature
		return errs.Perm
	}
	return errs.Disconnected
}
