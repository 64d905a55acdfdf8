package shm

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// What goes through the socket, which keeps packets apart. The dialler begins:
//
//	0      4        6         8            12          16        24       26    32     64        80
//	|magic |version |features |max message |recv depth |identity |refusal |zero |token |geometry |
//
// with the descriptor of the segment. The listener answers with the first 64 bytes of the same.
// refusal, in the answer, is the errs.Kind with which it refuses, or 0. After that the dialler
// may pass arenas and take them back, and both sides may ring:
//
//	0    4    8        16
//	|'A' |id  |size    |    with a descriptor: an arena, under a number not used before
//	|'W' |id  |             withdrawn: the arena is gone
//	|'D' |                  there is something to do
//
// Numbers are big-endian, as in the other providers' hellos; the letters stand in 32 bits.

const (
	helloMagic  = 0x534c5331 // "SLS1"
	helloBytes  = 64
	callBytes   = helloBytes + geometryBytes
	exportBytes = 16

	noteExport   = 'A'
	noteWithdraw = 'W'
	noteDoorbell = 'D'
)

func encodeHello(b []byte, h *fabric.Hello, refusal errs.Kind) {
	_ = b[helloBytes-1]
	binary.BigEndian.PutUint32(b[0:], helloMagic)
	binary.BigEndian.PutUint16(b[4:], h.Version)
	binary.BigEndian.PutUint16(b[6:], h.Features)
	binary.BigEndian.PutUint32(b[8:], h.MaxMessage)
	binary.BigEndian.PutUint32(b[12:], h.RecvDepth)
	binary.BigEndian.PutUint64(b[16:], h.Identity)
	binary.BigEndian.PutUint16(b[24:], uint16(refusal))
	copy(b[32:], h.Token[:])
}

// decodeHello reads a hello. With errs.Version only the version is known.
func decodeHello(b []byte) (fabric.Hello, errs.Kind, error) {
	var h fabric.Hello
	if len(b) < helloBytes || binary.BigEndian.Uint32(b[0:]) != helloMagic {
		return h, errs.OK, errs.Newf(errs.Protocol, "shm", "hello",
			"the peer does not speak this protocol")
	}
	h.Version = binary.BigEndian.Uint16(b[4:])
	refusal := errs.Kind(binary.BigEndian.Uint16(b[24:]))
	if h.Version != fabric.HelloVersion {
		return h, refusal, errs.Newf(errs.Version, "shm", "hello",
			"the peer speaks version %d, this side %d", h.Version, fabric.HelloVersion)
	}
	h.Features = binary.BigEndian.Uint16(b[6:])
	h.MaxMessage = binary.BigEndian.Uint32(b[8:])
	h.RecvDepth = binary.BigEndian.Uint32(b[12:])
	h.Identity = binary.BigEndian.Uint64(b[16:])
	if binary.BigEndian.Uint32(b[26:]) != 0 || binary.BigEndian.Uint16(b[30:]) != 0 {
		return h, refusal, errs.Newf(errs.Protocol, "shm", "hello", "reserved bytes are not zero")
	}
	copy(h.Token[:], b[32:])
	return h, refusal, nil
}

// decodeCall reads what a dialler begins with.
func decodeCall(b []byte) (fabric.Hello, geometry, error) {
	h, refusal, err := decodeHello(b)
	if err != nil {
		return h, geometry{}, err
	}
	if len(b) != callBytes || refusal != errs.OK {
		return h, geometry{}, errs.Newf(errs.Protocol, "shm", "hello", "no hello of a dialler")
	}
	g, err := decodeGeometry(b[helloBytes:])
	return h, g, err
}

// note is a packet after the hellos.
type note struct {
	kind byte
	id   uint32
	size uint64
}

func encodeNote(b []byte, n note) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(n.kind))
	if n.kind == noteDoorbell {
		return b
	}
	b = binary.BigEndian.AppendUint32(b, n.id)
	if n.kind == noteExport {
		b = binary.BigEndian.AppendUint64(b, n.size)
	}
	return b
}

func decodeNote(b []byte) (note, error) {
	if len(b) < 4 {
		return note{}, protocolErr("a note that is too short")
	}
	kind, want := binary.BigEndian.Uint32(b), 4
	switch kind {
	case noteExport:
		want = 16
	case noteWithdraw:
		want = 8
	case noteDoorbell:
	default:
		return note{}, protocolErr("unknown kind of note")
	}
	if len(b) != want {
		return note{}, protocolErr("a note of another length")
	}
	n := note{kind: byte(kind)}
	if want >= 8 {
		n.id = binary.BigEndian.Uint32(b[4:])
	}
	if want >= 16 {
		n.size = binary.BigEndian.Uint64(b[8:])
	}
	return n, nil
}
