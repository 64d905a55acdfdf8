package capability

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"hash"
	"sync"
)

// Signer signs with one key. It keeps what it needs for that. Safe for concurrent use.
type Signer struct{ macs macs }

// NewSigner makes a signer with a server's key.
func NewSigner(k Numbered) *Signer { return &Signer{macs{key: k}} }

// Sign makes the bytes that a client shows to the server.
func (s *Signer) Sign(c *Capability) (b [Bytes]byte) {
	m := s.macs.get()
	c.encode(&m.in)
	binary.BigEndian.PutUint32(m.in[keyAt:], s.macs.key.Gen)
	copy(b[:], m.in[:])
	copy(b[signed:], m.mac())
	s.macs.pool.Put(m)
	return b
}

// Signers signs for all servers of a cluster, with the key that signs at the moment. A signer is
// kept for each server, because making it costs more than signing. Safe for concurrent use.
type Signers struct {
	keys *Keyring
	byID sync.Map // server id -> *ofServer
}

// ofServer is a server's signer, made of one state of the keys.
type ofServer struct {
	of     *Ring
	signer *Signer
}

// NewSigners makes signers of a cluster's keys.
func NewSigners(k Keys) *Signers { return &Signers{keys: k.Keyring()} }

// Sign makes the bytes that a client shows to the server c.Server. Without any key they are good
// for nothing.
func (s *Signers) Sign(c *Capability) [Bytes]byte {
	now := s.keys.now.Load()
	if now == nil || len(*now) == 0 {
		return [Bytes]byte{}
	}
	if x, ok := s.byID.Load(c.Server); ok && x.(*ofServer).of == now {
		return x.(*ofServer).signer.Sign(c)
	}
	first := (*now)[0]
	x := &ofServer{now, NewSigner(Numbered{first.Gen, first.Key.ServerKey(c.Server)})}
	s.byID.Store(c.Server, x)
	return x.signer.Sign(c)
}

// macs are keyed hashes of one key.
type macs struct {
	key  Numbered
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
	return &macState{hash: hmac.New(sha256.New, x.key.Key[:])}
}

// rightly tells whether the signature is the key's. It allocates nothing.
func (x *macs) rightly(b *[Bytes]byte) bool {
	m := x.get()
	m.in = [signed]byte(b[:signed])
	right := subtle.ConstantTimeCompare(m.mac(), b[signed:]) == 1
	x.pool.Put(m)
	return right
}

// mac is the signature of what is in m.in, as long as a capability has it. It allocates nothing.
func (m *macState) mac() []byte {
	m.hash.Reset()
	m.hash.Write(m.in[:])
	return m.hash.Sum(m.sum[:0])[:Bytes-signed]
}
