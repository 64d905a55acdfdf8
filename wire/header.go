package wire

import "github.com/sluice-storage/sluice/errs"

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
}

// Header opens every message.
//
//	0        2    3    4     6       8           16       24    26       28        32
//	|magic   |ver |kind|op   |status |request id |session |slot |credits |sequence |
//	32      36          40         48           52        56          60          64        72
//	|epoch  |generation |truncseq  |deadline ms |body len |inline len |msg marks  |reserved |
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
	Pieces     uint32 // package msg's own: flags, level, question, segment count; see msg/marks.go
}

// Append adds the header's bytes to b.
func (h *Header) Append(b []byte) []byte {
	e := Enc{B: b}
	e.U16(magic)
	e.U8(Version)
	e.U8(uint8(h.Kind))
	e.U16(h.Op)
	e.U16(uint16(h.Status))
	e.U64(h.RequestID)
	e.U64(h.Stamp.Session)
	e.U16(h.Stamp.Slot)
	e.U16(h.Credits)
	e.U32(h.Stamp.Seq)
	e.U32(h.Stamp.Epoch)
	e.U32(h.Stamp.Gen)
	e.U64(h.Stamp.TruncSeq)
	e.U32(h.DeadlineMs)
	e.U32(h.BodyLen)
	e.U32(h.InlineLen)
	e.U32(h.Pieces)
	e.U64(0)
	return e.B
}

// ParseHeader reads the header at the start of msg and returns the body and the inline data, which
// point into msg. It fails unless the lengths add up to exactly the message.
func ParseHeader(msg []byte) (h Header, body, inline []byte, err error) {
	if len(msg) < HeaderBytes {
		return h, nil, nil, malformed("shorter than a header")
	}
	d := NewDec(msg[:HeaderBytes])
	if d.U16() != magic {
		return h, nil, nil, malformed("wrong magic: the peer does not speak sluice")
	}
	if v := d.U8(); v != Version {
		return h, nil, nil, errs.Newf(errs.Version, "wire.ParseHeader", "",
			"peer speaks version %d, this build speaks %d: upgrade the older side", v, Version)
	}
	h.Kind = Kind(d.U8())
	h.Op = d.U16()
	h.Status = errs.Kind(d.U16())
	h.RequestID = d.U64()
	h.Stamp.Session = d.U64()
	h.Stamp.Slot = d.U16()
	h.Credits = d.U16()
	h.Stamp.Seq = d.U32()
	h.Stamp.Epoch = d.U32()
	h.Stamp.Gen = d.U32()
	h.Stamp.TruncSeq = d.U64()
	h.DeadlineMs = d.U32()
	h.BodyLen = d.U32()
	h.InlineLen = d.U32()
	h.Pieces = d.U32()
	if d.U64() != 0 {
		return h, nil, nil, malformed("reserved bytes are not zero")
	}
	if h.Kind == 0 || h.Kind >= kindEnd {
		return h, nil, nil, malformed("unknown kind of message")
	}
	rest := msg[HeaderBytes:]
	if uint64(h.BodyLen)+uint64(h.InlineLen) != uint64(len(rest)) {
		return h, nil, nil, malformed("lengths do not add up to the message")
	}
	return h, rest[:h.BodyLen:h.BodyLen], rest[h.BodyLen:], nil
}

func malformed(why string) error {
	return errs.Newf(errs.Protocol, "wire.ParseHeader", "", "%s", why)
}
