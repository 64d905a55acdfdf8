package wire

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
)

// HeaderBytes is the size of Header on the wire.
const HeaderBytes = 72

// Version is the version of messages that this build speaks. A peer with another one is refused.
const Version = 1

const magic = 0x534c // "SL"

// Kind is what a message is.
type Kind uint8

// The kinds of messages. Data does not travel in messages but by one-sided operations, except where
// it is small enough to ride inline.
const (
	KindRequest Kind = iota + 1
	KindReply
	KindControl // credits, cancellation, goodbye
	kindEnd
)

// Stamp is what every request says about its writer and about the state of the world that it
// assumes. Servers compare it with what they know: a repeated request is recognised by session,
// slot and sequence; a deposed writer by epoch and generation; a write from before a truncation by
// TruncSeq. The values are in every request from the start, even where a server uses only some of
// them.
type Stamp struct {
	Session  uint64 // who: one client's session with the cluster; 0 for none
	Slot     uint16 // which of the session's slots carries the request
	Seq      uint32 // the slot's running number
	Epoch    uint32 // of the group that serves the object
	Gen      uint32 // of the object: raised when the file is fenced or its id reused
	TruncSeq uint64 // of the object: how many truncations the sender knows of

	// Life is not in the header: the server that received the request sets it, for its store. See
	// stripe.Keeper.
	Life uint64
}

// Header opens every message.
//
//	0        2    3    4     6       8           16       24    26       28        32
//	|magic   |ver |kind|op   |status |request id |session |slot |credits |sequence |
//	32      36          40         48           52        56          60          64        72
//	|epoch  |generation |truncseq  |deadline ms |body len |inline len |msg marks  |map      |
//
// After it: the body (control), then inline data. The segment descriptions of package msg are part
// of the body.
type Header struct {
	Kind       Kind
	Op         uint16    // meaning is the service's
	Status     errs.Kind // replies: OK or why it failed
	RequestID  uint64    // chosen by the requester, echoed by the reply
	Credits    uint16    // messages that the receiver of this header may send in addition
	Stamp      Stamp
	DeadlineMs uint32 // how long the requester will wait from now on; 0: no limit
	BodyLen    uint32
	InlineLen  uint32
	Pieces     uint32 // package msg's own: flags, level, segment count; see msg/internal/marks
	Map        uint64 // replies: the version of the cluster's map that the server knows; 0: of none
}

// Append adds the header's bytes to b.
func (h *Header) Append(b []byte) []byte {
	n := len(b)
	if cap(b)-n < HeaderBytes {
		b = append(b, make([]byte, HeaderBytes)...)
	}
	b = b[:n+HeaderBytes]
	p, be := (*[HeaderBytes]byte)(b[n:]), binary.BigEndian
	be.PutUint32(p[0:], magic<<16|Version<<8|uint32(h.Kind))
	be.PutUint16(p[4:], h.Op)
	be.PutUint16(p[6:], uint16(h.Status))
	be.PutUint64(p[8:], h.RequestID)
	be.PutUint64(p[16:], h.Stamp.Session)
	be.PutUint16(p[24:], h.Stamp.Slot)
	be.PutUint16(p[26:], h.Credits)
	be.PutUint32(p[28:], h.Stamp.Seq)
	be.PutUint32(p[32:], h.Stamp.Epoch)
	be.PutUint32(p[36:], h.Stamp.Gen)
	be.PutUint64(p[40:], h.Stamp.TruncSeq)
	be.PutUint32(p[48:], h.DeadlineMs)
	be.PutUint32(p[52:], h.BodyLen)
	be.PutUint32(p[56:], h.InlineLen)
	be.PutUint32(p[60:], h.Pieces)
	be.PutUint64(p[64:], h.Map)
	return b
}

// Parse reads the header at the start of msg and returns the body and the inline data, which point
// into msg. It fails unless the lengths add up to exactly the message. The header is read once:
// msg may be memory that a peer can still write.
func (h *Header) Parse(msg []byte) (body, inline []byte, err error) {
	if len(msg) < HeaderBytes {
		return nil, nil, malformed("shorter than a header")
	}
	p, be := (*[HeaderBytes]byte)(msg), binary.BigEndian
	open := be.Uint32(p[0:])
	*h = Header{
		Kind: Kind(open & 0xff), Op: be.Uint16(p[4:]), Status: errs.Kind(be.Uint16(p[6:])),
		RequestID: be.Uint64(p[8:]), Credits: be.Uint16(p[26:]),
		Stamp: Stamp{
			Session: be.Uint64(p[16:]), Slot: be.Uint16(p[24:]), Seq: be.Uint32(p[28:]),
			Epoch: be.Uint32(p[32:]), Gen: be.Uint32(p[36:]), TruncSeq: be.Uint64(p[40:]),
		},
		DeadlineMs: be.Uint32(p[48:]), BodyLen: be.Uint32(p[52:]), InlineLen: be.Uint32(p[56:]),
		Pieces: be.Uint32(p[60:]), Map: be.Uint64(p[64:]),
	}
	switch version := open >> 8 & 0xff; {
	case open>>16 != magic:
		return nil, nil, malformed("wrong magic: the peer does not speak sluice")
	case version != Version:
		return nil, nil, errs.Newf(errs.Version, "wire.Parse", "",
			"the peer speaks version %d of messages, this build %d: %s", version, Version,
			Remedy(int64(version), Version))
	case h.Map != 0 && h.Kind != KindReply:
		return nil, nil, malformed("reserved bytes are not zero")
	case h.Kind == 0 || h.Kind >= kindEnd:
		return nil, nil, malformed("unknown kind of message")
	}
	rest := msg[HeaderBytes:]
	if uint64(h.BodyLen)+uint64(h.InlineLen) != uint64(len(rest)) {
		return nil, nil, malformed("lengths do not add up to the message")
	}
	return rest[:h.BodyLen:h.BodyLen], rest[h.BodyLen:], nil
}

// Remedy is what to do about a peer that speaks another version than this side.
func Remedy(theirs, ours int64) string {
	if theirs > ours {
		return "this program is the older one, install the peer's version of sluice here"
	}
	return "the peer is the older one, install this program's version of sluice there"
}

func malformed(why string) error {
	return errs.Newf(errs.Protocol, "wire.Parse", "", "%s", why)
}
