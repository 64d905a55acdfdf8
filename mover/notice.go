package mover

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
)

// MaxTag is the largest tag of a notice: in an immediate there is one bit beside it.
const MaxTag = 1<<31 - 1

// How is how the peer is notified.
type How uint8

// The ways.
const (
	None      How = iota // the peer is not notified
	Immediate            // 32 bits beside the last write
	Message              // a message of its own, which says more
)

// Notice tells the peer that a move will not touch its memory any more. It follows everything else
// of the move. For a Put all of the data is in place then, in the segments or in the slot, except
// where the peer itself has revoked a grant: such a move fails here, and its notice may come
// nevertheless.
type Notice struct {
	How How

	// Tag is the name of the move on both sides. At most MaxTag.
	Tag uint32

	// Lengths adds the length of every segment to a Message, so that the peer can check them.
	Lengths bool
}

func (n *Notice) validate() error {
	if n.How > Message || n.Tag > MaxTag {
		return errs.Newf(errs.Invalid, "mover.Start", "", "no such notice")
	}
	return nil
}

// An immediate is the tag, and whether the data was packed:
//
//	 31     30       0
//	|packed |tag     |
const immPacked = 1 << 31

func imm(tag uint32, packed bool) uint32 {
	if packed {
		return tag | immPacked
	}
	return tag
}

// A message is a head and, if Notice.Lengths asked for it, the length of every segment:
//
//	0      2        3     4     8       16      20         24
//	|magic |version |kind |tag  |total  |count  |reserved 0 | count x length u64 |   big-endian
//
// kind is 1 when the data is in its segments and 2 when it lies packed at the start of the slot.
// total is how many bytes that are; the lengths, if there are any, add up to it.
const (
	noticeMagic   = 0x4d76 // "Mv"
	noticeVersion = 1
	noticeHead    = 24

	kindPlaced = 1
	kindPacked = 2
)

// noticeBytes is the size of a message with count lengths.
func noticeBytes(count int) int { return noticeHead + 8*count }

// appendNotice writes a message.
func appendNotice(b []byte, packed bool, tag uint32, total uint64, lengths []uint64) []byte {
	kind := byte(kindPlaced)
	if packed {
		kind = kindPacked
	}
	b = binary.BigEndian.AppendUint16(b, noticeMagic)
	b = append(b, noticeVersion, kind)
	b = binary.BigEndian.AppendUint32(b, tag)
	b = binary.BigEndian.AppendUint64(b, total)
	b = binary.BigEndian.AppendUint32(b, uint32(len(lengths)))
	b = binary.BigEndian.AppendUint32(b, 0)
	for _, n := range lengths {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// Received is a notice as the peer sent it. The list of lengths is still in the message.
type Received struct {
	Packed bool
	Tag    uint32
	Total  uint64
	list   []byte
}

// Count is how many lengths there are: 0, or one per segment.
func (r *Received) Count() int { return len(r.list) / 8 }

// Length is the i-th of them.
func (r *Received) Length(i int) uint64 { return binary.BigEndian.Uint64(r.list[8*i:]) }

// ParseNotice reads a message, of which it keeps the list of lengths; it allocates nothing.
// Everything in it is checked: lengths beyond maxCount or beyond its end are errs.Protocol, like
// everything else that Start does not write. A future version is errs.Version.
func ParseNotice(msg []byte, maxCount int) (Received, error) {
	if len(msg) < noticeHead || binary.BigEndian.Uint16(msg) != noticeMagic {
		return Received{}, malformed("it is no notice")
	}
	if msg[2] != noticeVersion {
		return Received{}, errs.Newf(errs.Version, "mover.Notice", "", "version %d", msg[2])
	}
	r := Received{
		Packed: msg[3] == kindPacked, Tag: binary.BigEndian.Uint32(msg[4:]),
		Total: binary.BigEndian.Uint64(msg[8:]), list: msg[noticeHead:],
	}
	count := binary.BigEndian.Uint32(msg[16:])
	switch {
	case msg[3] != kindPlaced && msg[3] != kindPacked:
		return Received{}, malformed("no such kind")
	case r.Tag > MaxTag:
		return Received{}, malformed("the tag is out of range")
	case binary.BigEndian.Uint32(msg[20:]) != 0:
		return Received{}, malformed("what is reserved is not zero")
	case int64(count) > int64(maxCount):
		return Received{}, malformed("it lists more lengths than there are segments")
	case len(r.list) != 8*int(count):
		return Received{}, malformed("the list of lengths is cut or too long")
	}
	return r, r.checkSum()
}

// checkSum checks that the lengths add up to the total.
func (r *Received) checkSum() error {
	left := r.Total
	for i := range r.Count() {
		n := r.Length(i)
		if n > left {
			return malformed("the lengths are more than the total")
		}
		left -= n
	}
	if r.Count() > 0 && left != 0 {
		return malformed("the lengths are less than the total")
	}
	return nil
}

func malformed(why string) error {
	return errs.Newf(errs.Protocol, "mover.Notice", "", "%s", why)
}
