package exio

import (
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// A message between two ends is a header and what its kind has behind it. Big-endian:
//
//	0       1     2       4     8    12   16   24      32
//	|version|kind |credits|note |id  |peer|tag |length |
//
//	eager    length bytes of data
//	request  |pieces u16 | count u16 | count x |key u64|addr u64|len u64| the sender's memory, where
//	         the reader fetches it; count 0: the sender writes it. pieces is how many it has
//	accept   |0 u16 | count u16 | 24 bytes: a slot for packed data, or zeroes | count x 24 bytes:
//	         where the reader wants the data
//	refuse   |kind u16|: the message failed, and is not to be sent
//	fetched  |kind u16|: the reader has fetched the data (0), or failed
//	credit   nothing
//	data     length bytes of data: of the socket driver, where accept has nothing behind its header
//
// credits are how many eager messages of the other side have been read since the last header. id
// is the sender's name of a write, and comes back in accept, refuse and fetched; peer is the
// reader's name of its read, which goes with accept and comes back in data or, as an immediate,
// behind the one-sided writes.
const (
	version     = 1
	headerBytes = 32
	remoteBytes = 24
	listBytes   = 4
)

// The kinds of messages.
const (
	kindEager uint8 = iota + 1
	kindRequest
	kindAccept
	kindRefuse
	kindFetched
	kindCredit
	kindData
	kindEnd
)

// lengthMax bounds one message: what an int has on every machine that has 64 bits.
const lengthMax = math.MaxInt64 >> 8

type header struct {
	kind    uint8
	credits uint16
	note    uint32
	id      uint32
	peer    uint32
	tag     uint64
	length  uint64
}

func (h *header) append(b []byte) []byte {
	e := wire.Enc{B: b}
	e.U8(version)
	e.U8(h.kind)
	e.U16(h.credits)
	e.U32(h.note)
	e.U32(h.id)
	e.U32(h.peer)
	e.U64(h.tag)
	e.U64(h.length)
	return e.B
}

// parseHeader reads a header and returns what is behind it.
func parseHeader(b []byte) (h header, rest []byte, err error) {
	if len(b) < headerBytes {
		return h, nil, malformed("a message of %d bytes", len(b))
	}
	if b[0] != version {
		return h, nil, errs.Newf(errs.Version, "exio", "", "the peer speaks version %d, this side %d",
			b[0], version)
	}
	d := wire.NewDec(b[1:headerBytes])
	h = header{kind: d.U8(), credits: d.U16(), note: d.U32(), id: d.U32(), peer: d.U32(),
		tag: d.U64(), length: d.U64()}
	switch {
	case h.kind == 0 || h.kind >= kindEnd:
		return h, nil, malformed("a message of kind %d", h.kind)
	case h.length > lengthMax:
		return h, nil, malformed("a message of %d bytes is announced", h.length)
	case h.tag == AnyTag && (h.kind == kindEager || h.kind == kindRequest):
		return h, nil, malformed("a message without a tag")
	}
	return h, b[headerBytes:], nil
}

// places are memory of the peer as a request or an accept lists it.
type places struct {
	pieces int           // of the sender
	slot   fabric.Remote // of an accept; Len 0: none
	list   []fabric.Remote
}

func appendRemote(e *wire.Enc, r fabric.Remote) {
	e.U64(r.Key)
	e.U64(r.Addr)
	e.U64(r.Len)
}

func readRemote(d *wire.Dec) fabric.Remote {
	return fabric.Remote{Key: d.U64(), Addr: d.U64(), Len: d.U64()}
}

func (p *places) append(b []byte, kind uint8) []byte {
	e := wire.Enc{B: b}
	e.U16(uint16(p.pieces))
	e.U16(uint16(len(p.list)))
	if kind == kindAccept {
		appendRemote(&e, p.slot)
	}
	for _, r := range p.list {
		appendRemote(&e, r)
	}
	return e.B
}

// parsePlaces reads them. Their lengths must add up to length, except that a request may list none.
func parsePlaces(b []byte, kind uint8, length uint64) (p places, err error) {
	d := wire.NewDec(b)
	p.pieces = int(d.U16())
	count := int(d.U16())
	if kind == kindAccept {
		p.slot = readRemote(&d)
	}
	if d.Err() != nil || p.pieces > MaxPieces || count > MaxPieces ||
		len(d.Rest()) != count*remoteBytes {
		return p, malformed("a list that is cut, or too long")
	}
	left := length
	for range count {
		r := readRemote(&d)
		if r.Len == 0 || r.Len > left || r.Addr > math.MaxUint64-r.Len {
			return p, malformed("pieces of another length than announced")
		}
		left -= r.Len
		p.list = append(p.list, r)
	}
	if left != 0 && (count > 0 || kind == kindAccept) {
		return p, malformed("pieces of another length than announced")
	}
	return p, nil
}

// parseKind reads why a message failed.
func parseKind(b []byte) (errs.Kind, error) {
	d := wire.NewDec(b)
	k := errs.Kind(d.U16())
	if d.Err() != nil || len(d.Rest()) != 0 || !k.Valid() {
		return 0, malformed("a failure that nobody knows")
	}
	return k, nil
}

func malformed(format string, args ...any) error {
	return errs.Newf(errs.Protocol, "exio", "", format, args...)
}
