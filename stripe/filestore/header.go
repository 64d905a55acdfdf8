package filestore

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
)

// headerBytes is the block in front of an object's bytes; byte i of the object is byte
// headerBytes + i of the file, so that blocks stay aligned.
//
//	0      4        6      8     16   20      24        32     36    40    48      56      60
//	|magic |version |flags |file |gen |stripe |truncseq |epoch |zero |size |before |crc32c |zeroes
//
// Big-endian; the checksum covers bytes 0 to 56; the rest of the block is zeroes. All of it
// lies in one disk sector, which is written whole or not at all. A block of zeroes, or a file
// too short for it, is an object that was being made when the host went down: it does not
// exist, since Sync would have made the header stable before anything was acknowledged.
//
// Flag 1, pending: a truncate to size has begun; before is the truncate sequence that the
// object had. Whoever meets the flag completes the truncate, or takes it back if the file
// system cannot hold the size. Without the flag size and before are zero.
const headerBytes = 4096

const (
	headerMagic   = 0x534c4f42 // "SLOB": sluice object
	headerVersion = 1
	headerUsed    = 60
	flagPending   = 1
)

// header is what an object remembers besides its bytes.
type header struct {
	id       stripe.ObjectID
	truncSeq uint64
	epoch    uint32 // of the last truncate, or of the write that made the object
	pending  bool
	target   int64  // pending: the size that the object will have
	before   uint64 // pending: the truncate sequence that it had
}

// checksum is CRC32C; the standard library builds the table once.
func checksum(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }

// encode lays the header out in a block.
func (h *header) encode() []byte {
	b := make([]byte, headerBytes)
	be := binary.BigEndian
	be.PutUint32(b[0:], headerMagic)
	be.PutUint16(b[4:], headerVersion)
	if h.pending {
		be.PutUint16(b[6:], flagPending)
		be.PutUint64(b[40:], uint64(h.target))
		be.PutUint64(b[48:], h.before)
	}
	be.PutUint64(b[8:], h.id.File)
	be.PutUint32(b[16:], h.id.Gen)
	be.PutUint32(b[20:], h.id.Stripe)
	be.PutUint64(b[24:], h.truncSeq)
	be.PutUint32(b[32:], h.epoch)
	be.PutUint32(b[56:], checksum(b[:56]))
	return b
}

// decodeHeader reads the start of a file. ok is false when the object was never completed.
func decodeHeader(b []byte, want stripe.ObjectID) (h header, ok bool, err error) {
	if len(b) < headerBytes || allZero(b[:headerUsed]) {
		return h, false, nil
	}
	be := binary.BigEndian
	bad := func(why string) (header, bool, error) {
		return header{}, false, errs.Newf(errs.Corrupt, "filestore.Header", want.String(), "%s", why)
	}
	if be.Uint32(b) != headerMagic {
		return bad("the file is no object: wrong magic")
	}
	if be.Uint32(b[56:]) != checksum(b[:56]) {
		return bad("the header fails its checksum")
	}
	if v := be.Uint16(b[4:]); v != headerVersion {
		return h, false, errs.Newf(errs.Version, "filestore.Header", want.String(),
			"object format %d, this build knows %d: use a newer build", v, headerVersion)
	}
	h = header{
		id: stripe.ObjectID{
			File: be.Uint64(b[8:]), Gen: be.Uint32(b[16:]), Stripe: be.Uint32(b[20:]),
		},
		truncSeq: be.Uint64(b[24:]),
		epoch:    be.Uint32(b[32:]),
		pending:  be.Uint16(b[6:]) == flagPending,
		target:   int64(be.Uint64(b[40:])),
		before:   be.Uint64(b[48:]),
	}
	switch {
	case h.id != want:
		return bad("the file holds object " + h.id.String())
	case be.Uint16(b[6:]) > flagPending, be.Uint32(b[36:]) != 0:
		return bad("unknown flags")
	case h.target < 0 || h.target > stripe.MaxObjectBytes:
		return bad("the size makes no sense")
	case !h.pending && (h.target != 0 || h.before != 0):
		return bad("the rest of a truncate without its flag")
	case !allZero(b[headerUsed:headerBytes]):
		return bad("the rest of the block is not zero")
	}
	return h, true, nil
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
