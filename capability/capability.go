// Package capability is what lets an I/O server decide alone: a short statement, signed by the
// metadata service, of what a session may do with one file on one server and until when. The server
// checks it with a key that it shares with the metadata service and asks nobody.
//
// It does no I/O: time and clocks are arguments. A Verifier remembers what it verified.
//
// Read capability.go first, then check.go (does it cover this request?), keys.go (keys change while
// a cluster runs), signer.go, verifier.go, rotation.go (when a new key is used and an old one ends)
// and clock.go (whose time it is).
package capability

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Bytes is the size of a signed capability.
const Bytes = 72

// TTLMax is the longest life of a capability. A client renews in good time; a revoked right ends,
// at the latest, this much later, or at once by raising the file's generation at the I/O servers.
const TTLMax = 60 * time.Second

// Rights on a file.
type Rights uint8

// The rights.
const (
	Read   Rights = 1 << iota // read data and allocation
	Write                     // write, punch, sync
	Manage                    // truncate, remove, fence: only the metadata service has it
)

// version of the format. Since 3 it says which key has signed, since 4 for which generation of
// writers.
const version = 4

// signed are the bytes before the mac: with a key in front of them they are one step of SHA-256.
const signed = 52

// Capability is the statement.
//
//	0    1       2       4    8     16       24   28         32
//	|ver |rights |ttl ms |gen |file |session |key |server id |
//	32         40      44    48     52      72
//	|expiry ms |layout |life |epoch |mac 20 |
//
// All big-endian; gen is the file's generation, key that of the key which has signed; expiry is
// Unix time in milliseconds; layout is the version of the file's layout; ttl ms is for how long it
// was given; life is the server's; epoch is the writer's generation; the mac is the first 20 bytes
// of HMAC-SHA256 over what is before it.
type Capability struct {
	File    uint64
	Gen     uint32
	Rights  Rights
	Session uint64
	Server  uint32
	Layout  uint32 // version of the file's layout
	Life    uint32 // of the server that has the file's objects; see Lost
	Epoch   uint32 // generation of the file's writers that it belongs to; 0: the file has none
	Expiry  time.Time
	TTL     time.Duration // from signing to expiry, at most ttlEnd; 0 signs TTLMax
}

// ttlEnd is the longest time that fits: longer ones are refused as this one is.
const ttlEnd = (1<<16 - 1) * time.Millisecond

// Signed is when it was signed, by the clock of whoever did.
func (c *Capability) Signed() time.Time { return c.Expiry.Add(-c.TTL) }

// Lost is the Life of a capability for objects that were in the memory of a server that has been
// started anew since. A server whose objects survive its process has no lives: 0.
const Lost = 1<<32 - 1

// Key signs and checks. Each I/O server has its own, derived from the cluster's.
type Key [32]byte

// ServerKey derives an I/O server's key from the cluster's. Whoever learns it can forge
// capabilities for that server only.
func (k Key) ServerKey(server uint32) Key {
	m := hmac.New(sha256.New, k[:])
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], server)
	m.Write([]byte("sluice iod key\x00"))
	m.Write(b[:])
	return Key(m.Sum(nil))
}

// Sign makes the bytes that a client shows to the server, with a key that never changes. Who signs
// often makes a Signer.
func (k Key) Sign(c *Capability) [Bytes]byte { return NewSigner(Numbered{First, k}).Sign(c) }

// keyAt is where the generation of the key stands.
const keyAt = 24

// keyOf is the generation of the key that is said to have signed.
func keyOf(b *[Bytes]byte) uint32 { return binary.BigEndian.Uint32(b[keyAt:]) }

// encode writes what is signed, but for the generation of the key.
func (c *Capability) encode(b *[signed]byte) {
	b[0] = version
	b[1] = byte(c.Rights)
	binary.BigEndian.PutUint32(b[4:], c.Gen)
	binary.BigEndian.PutUint64(b[8:], c.File)
	binary.BigEndian.PutUint64(b[16:], c.Session)
	binary.BigEndian.PutUint32(b[28:], c.Server)
	binary.BigEndian.PutUint64(b[32:], uint64(c.Expiry.UnixMilli()))
	binary.BigEndian.PutUint32(b[40:], c.Layout)
	ttl := min(c.TTL, ttlEnd)
	if ttl == 0 {
		ttl = TTLMax
	}
	binary.BigEndian.PutUint16(b[2:], uint16(ttl.Milliseconds()))
	binary.BigEndian.PutUint32(b[44:], c.Life)
	binary.BigEndian.PutUint32(b[48:], c.Epoch)
}

// Verify checks the signature of a key that never changes and returns what was signed. It does not
// judge the content: Check does. Who verifies often makes a Verifier.
func (k Key) Verify(b []byte) (Capability, error) { return NewVerifier(k).Verify(b) }

// parse reads what a signature vouches for.
func parse(b *[Bytes]byte) Capability {
	return Capability{
		Rights:  Rights(b[1]),
		Gen:     binary.BigEndian.Uint32(b[4:]),
		File:    binary.BigEndian.Uint64(b[8:]),
		Session: binary.BigEndian.Uint64(b[16:]),
		Server:  binary.BigEndian.Uint32(b[28:]),
		Layout:  binary.BigEndian.Uint32(b[40:]),
		Life:    binary.BigEndian.Uint32(b[44:]),
		Epoch:   binary.BigEndian.Uint32(b[48:]),
		Expiry:  time.UnixMilli(int64(binary.BigEndian.Uint64(b[32:]))),
		TTL:     time.Duration(binary.BigEndian.Uint16(b[2:])) * time.Millisecond,
	}
}
