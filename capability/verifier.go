package capability

import (
	"crypto/subtle"
	"encoding/binary"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
)

// remembered is how many capabilities a Verifier knows at most: 128 bytes each.
const remembered = 4096

// Verifier checks signatures of one key. A client shows the same capability with every request
// until it is renewed, so the Verifier remembers those that it has verified, in a table of fixed
// size where a newer one takes an older one's place. Nothing is allocated except when one is seen
// for the first time. A forged one is never remembered. Safe for concurrent use.
//
// The comparison with what is remembered takes the same time wherever the difference is, like that
// of the signature: nobody can find a signature byte by byte.
type Verifier struct {
	macs  macs
	known [remembered]atomic.Pointer[known]
}

// known is a capability whose signature was right. It does not change.
type known struct {
	bytes [Bytes]byte
	says  Capability
}

// NewVerifier makes a verifier of a server's key.
func NewVerifier(k Key) *Verifier { return &Verifier{macs: macs{key: k}} }

// Verify checks the signature and returns what was signed. It does not judge the content:
// Capability.Covers does.
func (v *Verifier) Verify(b []byte) (Capability, error) {
	if len(b) != Bytes {
		return refuse("wrong length")
	}
	bytes := (*[Bytes]byte)(b)
	// The last bytes of the signature are as good as random.
	place := &v.known[binary.BigEndian.Uint64(bytes[Bytes-8:])%remembered]
	if k := place.Load(); k != nil && same(&k.bytes, bytes) {
		return k.says, nil
	}
	if !v.rightly(bytes) {
		return refuse("signature does not match")
	}
	if bytes[0] != version {
		return refuse("unknown version")
	}
	k := &known{bytes: *bytes, says: parse(bytes)}
	place.Store(k)
	return k.says, nil
}

// same compares all bytes, whatever the first ones are.
func same(a, b *[Bytes]byte) bool {
	var differ uint64
	for i := 0; i < Bytes; i += 8 {
		differ |= binary.NativeEndian.Uint64(a[i:]) ^ binary.NativeEndian.Uint64(b[i:])
	}
	return differ == 0
}

// rightly tells whether the signature is the key's. It allocates nothing.
func (v *Verifier) rightly(b *[Bytes]byte) bool {
	m := v.macs.get()
	m.in = [signed]byte(b[:signed])
	right := subtle.ConstantTimeCompare(m.mac(), b[signed:]) == 1
	v.macs.pool.Put(m)
	return right
}

func refuse(why string) (Capability, error) {
	return Capability{}, errs.Newf(errs.Forged, "capability.Verify", "", "%s", why)
}
