package capability

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
)

// remembered is how many capabilities a Verifier knows at most: 128 bytes each.
const remembered = 4096

// Verifier checks signatures of the keys that are valid. A client shows the same capability with
// every request until it is renewed, so the Verifier remembers those that it has verified, in a
// table of fixed size where a newer one takes an older one's place. Nothing is allocated except
// when one is seen for the first time. A forged one is never remembered, and one whose key is gone
// is as good as forgotten: what is remembered counts only together with its key. Safe for
// concurrent use.
//
// The comparison with what is remembered takes the same time wherever the difference is, like that
// of the signature: nobody can find a signature byte by byte.
type Verifier struct {
	keys  *Keyring
	set   atomic.Pointer[macSet]
	known [remembered]atomic.Pointer[known]
}

// macSet is what is needed to check with one state of the keys. It does not change.
type macSet struct {
	of   *Ring
	macs []*macs
}

// known is a capability whose signature was right. It does not change.
type known struct {
	bytes [Bytes]byte
	says  Capability
	by    *macs // the key that has signed it
}

// NewVerifier makes a verifier of a server's keys.
func NewVerifier(k Keys) *Verifier {
	v := &Verifier{keys: k.Keyring()}
	v.set.Store(&macSet{})
	return v
}

// Verify checks the signature and returns what was signed. It does not judge the content:
// Capability.Covers does. errs.Forged: nobody has signed it who may. errs.Expired: the key that is
// said to have signed it is not valid any more; renew the capability. errs.Again: there is no such
// key yet; the server is about to hear of it.
func (v *Verifier) Verify(b []byte) (Capability, error) {
	if len(b) != Bytes {
		return refuse("wrong length")
	}
	if b[0] != version {
		return refuse("unknown version")
	}
	bytes := (*[Bytes]byte)(b)
	set := v.current()
	by := set.find(keyOf(bytes))
	if by == nil {
		return set.unknown(keyOf(bytes))
	}
	// The last bytes of the signature are as good as random.
	place := &v.known[binary.BigEndian.Uint64(bytes[Bytes-8:])%remembered]
	if k := place.Load(); k != nil && k.by == by && same(&k.bytes, bytes) {
		return k.says, nil
	}
	if !by.rightly(bytes) {
		return refuse("signature does not match")
	}
	k := &known{bytes: *bytes, says: parse(bytes), by: by}
	place.Store(k)
	return k.says, nil
}

// current is what checks with the keys of this moment. Keys that stay keep what they were made
// into, so that what they have signed stays remembered.
func (v *Verifier) current() *macSet {
	for {
		was, now := v.set.Load(), v.keys.now.Load()
		if was.of == now {
			return was
		}
		next := &macSet{of: now}
		for _, k := range *now {
			m := was.find(k.Gen)
			if m == nil || m.key != k {
				m = &macs{key: k}
			}
			next.macs = append(next.macs, m)
		}
		if v.set.CompareAndSwap(was, next) {
			return next
		}
	}
}

// find is the key of a generation; nil: it is not valid.
func (s *macSet) find(gen uint32) *macs {
	for _, m := range s.macs {
		if m.key.Gen == gen {
			return m
		}
	}
	return nil
}

// unknown refuses what a key has signed that is not valid, with the remedy.
func (s *macSet) unknown(gen uint32) (Capability, error) {
	older, newer := len(s.macs) > 0, true
	for _, m := range s.macs {
		older, newer = older && gen < m.key.Gen, newer && gen > m.key.Gen
	}
	switch {
	case gen == 0:
		return refuse("no key has signed it")
	case newer:
		return Capability{}, errs.Newf(errs.Again, "capability.Verify", "",
			"signed with key %d, which this server has not heard of yet", gen)
	case older:
		return Capability{}, errs.Newf(errs.Expired, "capability.Verify", "",
			"signed with key %d, which has ended; renew it at the metadata service", gen)
	}
	return refuse("no such key")
}

// same compares all bytes, whatever the first ones are.
func same(a, b *[Bytes]byte) bool {
	var differ uint64
	for i := 0; i < Bytes; i += 8 {
		differ |= binary.NativeEndian.Uint64(a[i:]) ^ binary.NativeEndian.Uint64(b[i:])
	}
	return differ == 0
}

func refuse(why string) (Capability, error) {
	return Capability{}, errs.Newf(errs.Forged, "capability.Verify", "", "%s", why)
}
