package capability

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
)

// Signer signs with one key. It keeps what it needs for that. Safe for concurrent use.
type Signer struct{ macs macs }

// NewSigner makes a signer with a server's key.
func NewSigner(k Key) *Signer { return &Signer{macs{key: k}} }

// Sign makes the bytes that a client shows to the server.
func (s *Signer) Sign(c *Capability) (b [Bytes]byte) {
	m := s.macs.get()
	c.encode(&m.in)
	copy(b[:], m.in[:])
	copy(b[signed:], m.mac())
	s.macs.pool.Put(m)
	return b
}

// macs are keyed hashes of one key.
type macs struct {
	key  Key
	pool sync.Pool // of *macState
}

// macState is a keyed hash, ready to be used again.
type macState struct {
	hash hash.Hash
	in   [signed]byte
	sum  [sha256.Size]byte
}

func (x *macs) get() *macState {
	if m, ok := x.pool.Get().(*macState); ok {
		return m
	}
	return &macState{hash: hmac.New(sha256.New, x.key[:])}
}

// mac is the signature of what is in m.in, as long as a capability has it. It allocates nothing.
func (m *macState) mac() []byte {
	m.hash.Reset()
	m.hash.Write(m.in[:])
	return m.hash.Sum(m.sum[:0])[:Bytes-signed]
}
