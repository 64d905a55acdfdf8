package capability

import (
	"crypto/hmac"
	"crypto/sha256"
	"slices"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
)

// First is the generation of a key that never changes: that of a cluster without an authority.
const First = 1

// RingMax is how many keys are valid at a time, at most.
const RingMax = 2

// Numbered is a key and its generation, which a capability names. A later key has a higher number.
// 0 is none.
type Numbered struct {
	Gen uint32
	Key Key
}

// Ring is the keys that are valid: the first one signs, all of them verify. Nobody changes one that
// others have.
type Ring []Numbered

// Keys is where keys come from: a Key is one that never changes, a Keyring is told of changes.
type Keys interface {
	Keyring() *Keyring
}

// Keyring implements Keys.
func (k Key) Keyring() *Keyring { return NewKeyring(k.Ring()) }

// Ring is the key alone, as one that never changes.
func (k Key) Ring() Ring { return Ring{{First, k}} }

// Derive makes the key of a cluster's secret. It is another one than all that are made of the same
// secret for other purposes.
func Derive(secret []byte) Key {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("sluice capability key\x00"))
	return Key(m.Sum(nil))
}

// For derives the keys of an I/O server from those of the cluster.
func (r Ring) For(server uint32) Ring {
	own := make(Ring, len(r))
	for i, k := range r {
		own[i] = Numbered{k.Gen, k.Key.ServerKey(server)}
	}
	return own
}

// Newest is the highest generation; 0: there is no key.
func (r Ring) Newest() (gen uint32) {
	for _, k := range r {
		gen = max(gen, k.Gen)
	}
	return gen
}

// Gens are the generations, the one that signs first.
func (r Ring) Gens() []uint32 {
	gens := make([]uint32, len(r))
	for i, k := range r {
		gens[i] = k.Gen
	}
	return gens
}

// Check refuses what cannot be valid keys: none, too many, two of one number.
func (r Ring) Check() error {
	if len(r) == 0 || len(r) > RingMax {
		return errs.Newf(errs.Invalid, "capability.Ring", "", "%d keys, want 1 to %d", len(r), RingMax)
	}
	for i, k := range r {
		if k.Gen == 0 || slices.Contains(r.Gens()[:i], k.Gen) {
			return errs.Newf(errs.Invalid, "capability.Ring", "", "generation %d", k.Gen)
		}
	}
	return nil
}

// Keyring is keys that change while they are used: whoever has made a Signer or a Verifier of it
// uses the new ones from the next capability on. The zero Keyring has no key. Safe for concurrent
// use.
type Keyring struct{ now atomic.Pointer[Ring] }

var _, _ Keys = Key{}, (*Keyring)(nil)

// NewKeyring makes one with its first keys.
func NewKeyring(r Ring) *Keyring {
	k := &Keyring{}
	k.Set(r)
	return k
}

// Keyring implements Keys.
func (k *Keyring) Keyring() *Keyring { return k }

// Ring is the keys that are valid now.
func (k *Keyring) Ring() Ring {
	if r := k.now.Load(); r != nil {
		return *r
	}
	return nil
}

// Set replaces the keys, and tells whether they are others than before.
func (k *Keyring) Set(r Ring) (changed bool) {
	for {
		was := k.now.Load()
		if was != nil && slices.Equal(*was, r) || was == nil && len(r) == 0 {
			return false
		}
		now := slices.Clone(r)
		if k.now.CompareAndSwap(was, &now) {
			return true
		}
	}
}
