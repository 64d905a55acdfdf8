package shm

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// A ring carries frames: a header of 32 bytes, part bytes of payload, and zeros up to a multiple of
// 64. A header never wraps around the end of the ring, a payload may. A frame becomes visible as a
// whole: its first word, kind to length, is written last, and is not 0. A request that is longer
// than a part goes in several frames, the first of its kind and then "more" or "lent more"; only
// reads and their answers may come between these. Numbers are little-endian; what a kind does not
// use is zero.
//
//	0    1     2     4       8       12    16      24      32
//	|kind|flags|tag  |length |part   |imm  |key    |addr   | payload | pad
//
//	kind            payload  uses
//	1 send          yes      flags, length, part, imm
//	2 write         yes      length, part, key, addr
//	3 write imm     yes      flags, length, part, imm, key, addr
//	4 more          yes      part: goes on with the send or write before it
//	5 read          no       tag, length, key, addr: asks for length bytes, under a number
//	6 read data     yes      tag, part: the next bytes of the answer to it
//	7 read refused  no       tag
//	8 placed        no       flags, length, imm: a write imm whose bytes are in place already
//	9 lent          16       length, key, addr: a write whose bytes are in memory that was lent
//	10 lent more    16       goes on with it
//
// The payload of the last two names memory of the sender's, of an arena that the receiver has
// borrowed (hello.go). The receiver copies the bytes from there:
//
//	0     4     8       16
//	|arena|bytes|offset |
//
// The first word is one number in the host's byte order, in which kind is the lowest byte.
//
// Writes (kinds 2, 3, 8 and 9) are numbered from 1 by counting, at both ends.

type frameKind uint8

const (
	frameSend frameKind = iota + 1
	frameWrite
	frameWriteImm
	frameMore
	frameRead
	frameReadData
	frameReadRefused
	framePlaced
	frameLent
	frameLentMore
	frameKinds
)

const (
	frameSolicited = 1 // flags: the sender set fabric.FlagSolicited

	headerBytes = 32
	lineBytes   = 64 // frames are multiples of it
	loanBytes   = 16 // payload of a frame of the two kinds that lend
)

type header struct {
	kind   frameKind
	flags  uint8
	tag    uint16
	length uint32
	part   uint32
	imm    uint32
	key    uint64
	addr   uint64
}

// frameBytes is the size in a ring of a frame with part bytes of payload.
func frameBytes(part int) int { return (headerBytes + part + lineBytes - 1) &^ (lineBytes - 1) }

// word is the first eight bytes as one number.
func (h *header) word() uint64 {
	return uint64(h.kind) | uint64(h.flags)<<8 | uint64(h.tag)<<16 | uint64(h.length)<<32
}

// encode writes what comes after the first word.
func (h *header) encode(b []byte) {
	_ = b[headerBytes-9]
	binary.LittleEndian.PutUint32(b[0:], h.part)
	binary.LittleEndian.PutUint32(b[4:], h.imm)
	binary.LittleEndian.PutUint64(b[8:], h.key)
	binary.LittleEndian.PutUint64(b[16:], h.addr)
}

// limits are what a frame's lengths are checked against.
type limits struct {
	message uint32 // the largest Send that this side takes
	part    uint32 // the largest payload of one frame
}

// decode reads a header from copies of its first word and its rest: what is checked is what is
// used.
func (h *header) decode(word uint64, b *[headerBytes - 8]byte, lim limits) error {
	*h = header{
		kind: frameKind(word & 0xff), flags: uint8(word >> 8 & 0xff),
		tag:    uint16(word >> 16 & 0xffff),
		length: uint32(word >> 32),
		part:   binary.LittleEndian.Uint32(b[0:]),
		imm:    binary.LittleEndian.Uint32(b[4:]),
		key:    binary.LittleEndian.Uint64(b[8:]),
		addr:   binary.LittleEndian.Uint64(b[16:]),
	}
	if h.whole(lim) {
		return nil
	}
	if why := h.check(lim); why != "" {
		return protocolErr(why)
	}
	return nil
}

// whole tells whether this is a valid Send of one frame, the common case.
func (h *header) whole(lim limits) bool {
	return h.kind == frameSend && h.flags <= frameSolicited && h.tag == 0 &&
		h.part == h.length && h.part <= lim.part && h.length <= min(lim.message, maxTransfer) &&
		h.key|h.addr == 0
}

// check returns what is wrong with a header, or nothing.
func (h *header) check(lim limits) string {
	if h.kind == 0 || h.kind >= frameKinds {
		return "unknown kind of frame"
	}
	use := fieldsOf(h.kind)
	switch {
	case h.flags != 0 && (!use.flags || h.flags != frameSolicited):
		return "unknown flag"
	case h.tag >= provider.ReadDepth || h.tag != 0 && !use.tag:
		return "no such tag"
	case h.length > maxTransfer || h.length != 0 && !use.length:
		return "length out of range"
	case h.part > lim.part || h.part != 0 && !use.part:
		return "more payload than a frame holds"
	case h.lends() && h.part != loanBytes:
		return "no loan"
	case use.length && use.part && !h.lends() &&
		(h.part > h.length || h.part == 0 && h.length != 0):
		return "a payload that does not fit its length"
	case h.kind == frameLent && h.length == 0:
		return "an empty loan"
	case (h.kind == frameMore || h.kind == frameReadData || h.kind == frameRead) &&
		h.part == 0 && h.length == 0:
		return "an empty frame"
	case h.kind == frameSend && h.length > lim.message:
		return "message longer than promised"
	case h.imm != 0 && !use.imm || (h.key != 0 || h.addr != 0) && !use.key:
		return "a field that must be zero is not"
	}
	return ""
}

// lends tells whether the frame's bytes are in memory that was lent.
func (h *header) lends() bool { return h.kind == frameLent || h.kind == frameLentMore }

// loan is the payload of such a frame.
type loan struct {
	arena uint32
	bytes uint32
	off   uint64
}

func (l *loan) encode(b *[loanBytes]byte) {
	binary.LittleEndian.PutUint32(b[0:], l.arena)
	binary.LittleEndian.PutUint32(b[4:], l.bytes)
	binary.LittleEndian.PutUint64(b[8:], l.off)
}

func decodeLoan(b *[loanBytes]byte) loan {
	return loan{
		arena: binary.LittleEndian.Uint32(b[0:]),
		bytes: binary.LittleEndian.Uint32(b[4:]),
		off:   binary.LittleEndian.Uint64(b[8:]),
	}
}

// fields says what a kind of frame uses.
type fields struct{ flags, tag, length, part, imm, key bool }

func fieldsOf(k frameKind) fields {
	switch k {
	case frameSend:
		return fields{flags: true, length: true, part: true, imm: true}
	case frameWrite:
		return fields{length: true, part: true, key: true}
	case frameWriteImm:
		return fields{flags: true, length: true, part: true, imm: true, key: true}
	case frameLent:
		return fields{length: true, part: true, key: true}
	case frameMore, frameLentMore:
		return fields{part: true}
	case frameRead:
		return fields{tag: true, length: true, key: true}
	case frameReadData:
		return fields{tag: true, part: true}
	case frameReadRefused:
		return fields{tag: true}
	case framePlaced:
		return fields{flags: true, length: true, imm: true}
	}
	return fields{}
}

func protocolErr(why string) error { return errs.Newf(errs.Protocol, "shm", "", "%s", why) }
