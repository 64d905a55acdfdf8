// Package capability is what lets an I/O server decide alone: a short statement, signed by the
// metadata service, of what a session may do with one file on one server and until when. The server
// checks it with a key that it shares with the metadata service and asks nobody.
//
// It does no I/O: time and clocks are arguments. A Verifier remembers what it verified.
//
// Read capability.go first, then check.go (does it cover this request?), signer.go, verifier.go and
// clock.go (whose time it is).
package capability

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Bytes is the size of a signed capability.
const Bytes = 64

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

const version = 2

const signed = 48 // bytes before the mac

// Capability is the statement.
//
//	0    1       2       4     8     16       24         32         40      44    48      64
//	|ver |rights |ttl ms |gen  |file |session |server id |expiry ms |layout |life |mac 16 |
//
// All big-endian; server id is 8 bytes wide; expiry is Unix time in milliseconds; layout is the
// version of the file's layout; ttl ms is for how long it was given; life is the server's; the mac
// is the first 16 bytes of HMAC-SHA256 over what is before it.
type Capability struct {
	File    uint64
	Gen     uint32
	Rights  Rights
	Session uint64
	Server  uint32
	Layout  uint32 // version of the file's layout
	Life    uint32 // of the server that has the file's objects; see Lost
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

// Sign makes the bytes that a client shows to the server. Who signs often makes a Signer.
func (k Key) Sign(c *Capability) [Bytes]byte { return NewSigner(k).Sign(c) }

// encode writes what is signed.
func (c *Capability) encode(b *[signed]byte) {
	b[0] = version
	b[1] = byte(c.Rights)
	binary.BigEndian.PutUint32(b[4:], c.Gen)
	binary.BigEndian.PutUint64(b[8:], c.File)
	binary.BigEndian.PutUint64(b[16:], c.Session)
	binary.BigEndian.PutUint64(b[24:], uint64(c.Server))
	binary.BigEndian.PutUint64(b[32:], uint64(c.Expiry.UnixMilli()))
	binary.BigEndian.PutUint32(b[40:], c.Layout)
	ttl := min(c.TTL, ttlEnd)
	if ttl == 0 {
		ttl = TTLMax
	}
	binary.BigEndian.PutUint16(b[2:], uint16(ttl.Milliseconds()))
	binary.BigEndian.PutUint32(b[44:], c.Life)
}

// Verify checks the signature and returns what was signed. It does not judge the content: Check
// does. Who verifies often makes a Verifier.
func (k Key) Verify(b []byte) (Capability, error) { return NewVerifier(k).Verify(b) }

// parse reads what a signature vouches for.
func parse(b *[Bytes]byte) Capability {
	return Capability{
		Rights:  Rights(b[1]),
		Gen:     binary.BigEndian.Uint32(b[4:]),
		File:    binary.BigEndian.Uint64(b[8:]),
		Session: binary.BigEndian.Uint64(b[16:]),
		Server:  uint32(binary.BigEndian.Uint64(b[24:])),
		Layout:  binary.BigEndian.Uint32(b[40:]),
		Life:    binary.BigEndian.Uint32(b[44:]),
		Expiry:  time.UnixMilli(int64(binary.BigEndian.Uint64(b[32:]))),
		TTL:     time.Duration(binary.BigEndian.Uint16(b[2:])) * time.Millisecond,
	}
}
