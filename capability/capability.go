// Package capability is what lets an I/O server decide alone: a short statement, signed by the
// metadata service, of what a session may do with one file on one server and until when. The server
// checks it with a key that it shares with the metadata service and asks nobody.
//
// It does no I/O, keeps no state and reads no clock: time is an argument.
package capability

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/sluice-storage/sluice/errs"
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

const version = 1

// Capability is the statement.
//
//	0    1       2          4      8      16       24         32           40  48       64
//	|ver |rights |reserved  |gen   |file  |session |server id |expiry ms   |0  |mac 16  |
//
// All big-endian; server id is 8 bytes wide; expiry is Unix time in milliseconds; the mac is the
// first 16 bytes of HMAC-SHA256 over what is before it.
type Capability struct {
	File    uint64
	Gen     uint32
	Rights  Rights
	Session uint64
	Server  uint32
	Expiry  time.Time
}

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

func (k Key) mac(b []byte) [16]byte {
	m := hmac.New(sha256.New, k[:])
	m.Write(b)
	return [16]byte(m.Sum(nil)[:16])
}

// Sign makes the bytes that a client shows to the server.
func (k Key) Sign(c *Capability) [Bytes]byte {
	var b [Bytes]byte
	b[0] = version
	b[1] = byte(c.Rights)
	binary.BigEndian.PutUint32(b[4:], c.Gen)
	binary.BigEndian.PutUint64(b[8:], c.File)
	binary.BigEndian.PutUint64(b[16:], c.Session)
	binary.BigEndian.PutUint64(b[24:], uint64(c.Server))
	binary.BigEndian.PutUint64(b[32:], uint64(c.Expiry.UnixMilli()))
	mac := k.mac(b[:48])
	copy(b[48:], mac[:])
	return b
}

// Verify checks the signature and returns what was signed. It does not judge the content: Check
// does.
func (k Key) Verify(b []byte) (Capability, error) {
	refuse := func(why string) (Capability, error) {
		return Capability{}, errs.Newf(errs.Forged, "capability.Verify", "", "%s", why)
	}
	if len(b) != Bytes {
		return refuse("wrong length")
	}
	mac := k.mac(b[:48])
	if !hmac.Equal(mac[:], b[48:]) {
		return refuse("signature does not match")
	}
	if b[0] != version {
		return refuse("unknown version")
	}
	return Capability{
		Rights:  Rights(b[1]),
		Gen:     binary.BigEndian.Uint32(b[4:]),
		File:    binary.BigEndian.Uint64(b[8:]),
		Session: binary.BigEndian.Uint64(b[16:]),
		Server:  uint32(binary.BigEndian.Uint64(b[24:])),
		Expiry:  time.UnixMilli(int64(binary.BigEndian.Uint64(b[32:]))),
	}, nil
}

// Need is what a request asks of a capability.
type Need struct {
	File    uint64
	Gen     uint32
	Rights  Rights
	Session uint64
	Server  uint32
}

// Check tells whether a verified capability covers the need at time now: errs.Expired when only its
// time is over (renew it), errs.Stale when the generation differs (open the file again), errs.Perm
// otherwise.
func (c *Capability) Check(n Need, now time.Time) error {
	fail := func(k errs.Kind, why string) error {
		return errs.Newf(k, "capability.Check", "", "%s", why)
	}
	switch {
	case c.File != n.File:
		return fail(errs.Perm, "for another file")
	case c.Server != n.Server:
		return fail(errs.Perm, "for another server")
	case c.Session != n.Session:
		return fail(errs.Perm, "for another session")
	case c.Rights&n.Rights != n.Rights:
		return fail(errs.Perm, "right not granted")
	case c.Gen != n.Gen:
		return fail(errs.Stale, "file has another generation")
	case !now.Before(c.Expiry):
		return fail(errs.Expired, "run out; renew it at the metadata service")
	case c.Expiry.Sub(now) > 2*TTLMax:
		return fail(errs.Perm, "lives longer than allowed")
	}
	return nil
}
