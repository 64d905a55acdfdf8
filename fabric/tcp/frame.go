package tcp

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// After the hellos a connection carries frames: a header of 32 bytes, then length bytes of payload
// where the kind has one. Numbers are big-endian; what a kind does not use is zero.
//
//	0    1     2     4       8     12    16      24      32
//	|kind|flags|tag  |length |imm  |ack  |key    |addr   | payload
//
//	kind            payload  uses
//	1 send          yes      flags, length, imm
//	2 write         yes      flags, length, key, addr
//	3 write imm     yes      flags, length, imm, key, addr
//	4 read          no       tag, length, key, addr: asks for length bytes, under a number
//	5 read data     yes      tag, length: the answer to it
//	6 read refused  no       tag, imm: the error kind instead
//	7 write refused no       key: the number of the refused request, imm: the error kind
//	8 ack           no       nothing: only carries ack
//	9 bye           no       imm: the error kind with which the sender ends the connection
//
// Sends and writes are numbered from 1 by counting, at both ends. ack, in every frame, is the
// number (its low 32 bits) of the last one that the sender of the frame has carried out or
// refused; a refusal leaves before the first ack that covers it.

type frameKind uint8

const (
	frameSend frameKind = iota + 1
	frameWrite
	frameWriteImm
	frameRead
	frameReadData
	frameReadRefused
	frameWriteRefused
	frameAck
	frameBye
	frameKinds
)

// Flags of a frame.
const (
	frameWantsAck  = 1 << iota // tell the ack soon, nothing else may come to carry it
	frameSolicited             // the sender set fabric.FlagSolicited
)

const (
	headerBytes = 32
	maxTransfer = 1 << 30 // of any payload, whatever the options
)

type header struct {
	kind   frameKind
	flags  uint8
	tag    uint16
	length uint32
	imm    uint32
	ack    uint32
	key    uint64
	addr   uint64
}

// payload is the number of bytes that follow the header.
func (h *header) payload() int {
	switch h.kind {
	case frameSend, frameWrite, frameWriteImm, frameReadData:
		return int(h.length)
	}
	return 0
}

// takesRecv tells whether the frame consumes a posted receive.
func (h *header) takesRecv() bool { return h.kind == frameSend || h.kind == frameWriteImm }

func (h *header) encode(b *[headerBytes]byte) {
	b[0], b[1] = byte(h.kind), h.flags
	binary.BigEndian.PutUint16(b[2:], h.tag)
	binary.BigEndian.PutUint32(b[4:], h.length)
	binary.BigEndian.PutUint32(b[8:], h.imm)
	binary.BigEndian.PutUint32(b[12:], h.ack)
	binary.BigEndian.PutUint64(b[16:], h.key)
	binary.BigEndian.PutUint64(b[24:], h.addr)
}

// decodeHeader reads a header and checks everything that can be checked without knowing the state
// of the connection. b is the reader's own copy. maxMessage is what this side's hello promised.
func decodeHeader(b *[headerBytes]byte, maxMessage uint32) (header, error) {
	h := header{
		kind:   frameKind(b[0]),
		flags:  b[1],
		tag:    binary.BigEndian.Uint16(b[2:]),
		length: binary.BigEndian.Uint32(b[4:]),
		imm:    binary.BigEndian.Uint32(b[8:]),
		ack:    binary.BigEndian.Uint32(b[12:]),
		key:    binary.BigEndian.Uint64(b[16:]),
		addr:   binary.BigEndian.Uint64(b[24:]),
	}
	why := ""
	use := fieldsOf(h.kind)
	switch {
	case h.kind == 0 || h.kind >= frameKinds:
		why = "unknown kind of frame"
	case h.flags&^(frameWantsAck|frameSolicited) != 0 || h.flags != 0 && !use.flags:
		why = "unknown flags"
	case h.tag != 0 && !use.tag || h.tag >= provider.ReadDepth:
		why = "tag out of range"
	case h.length != 0 && !use.length || h.length > maxTransfer:
		why = "length out of range"
	case h.kind == frameSend && h.length > maxMessage:
		why = "message longer than promised"
	case h.imm != 0 && !use.imm || h.key != 0 && !use.key || h.addr != 0 && !use.addr:
		why = "a field that must be zero is not"
	case use.errKind && !refusable(h.imm):
		why = "unknown error kind"
	}
	if why != "" {
		return h, errs.Newf(errs.Protocol, "tcp", "frame", "%s (%x)", why, *b)
	}
	return h, nil
}

// fields says what a kind of frame uses.
type fields struct{ flags, tag, length, imm, key, addr, errKind bool }

func fieldsOf(k frameKind) fields {
	switch k {
	case frameSend:
		return fields{flags: true, length: true, imm: true}
	case frameWrite:
		return fields{flags: true, length: true, key: true, addr: true}
	case frameWriteImm:
		return fields{flags: true, length: true, imm: true, key: true, addr: true}
	case frameRead:
		return fields{tag: true, length: true, key: true, addr: true}
	case frameReadData:
		return fields{tag: true, length: true}
	case frameReadRefused:
		return fields{tag: true, imm: true, errKind: true}
	case frameWriteRefused:
		return fields{key: true, imm: true, errKind: true}
	case frameBye:
		return fields{imm: true, errKind: true}
	}
	return fields{}
}

// refusable tells whether a peer may name this error kind.
func refusable(imm uint32) bool {
	switch errs.Kind(imm) {
	case errs.Perm, errs.Protocol, errs.Closed:
		return imm < 1<<16
	}
	return false
}
