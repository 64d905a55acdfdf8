package shm

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// What goes through the socket, which keeps packets apart. The dialler begins:
//
//	0                                 64        80
//	|hello, see provider.HelloBytes   |geometry |
//
// with the descriptor of the segment. The listener answers with a hello. After that the dialler may
// pass arenas; the listener may lend some, if the dialler has said that it borrows (geometry). Both
// sides may withdraw what is theirs, and ring the doorbell:
//
//	0    4    8        16
//	|'A' |id  |size    |    with a descriptor: an arena, under a number not used before
//	|'L' |id  |size    |    the same, to be read only: an arena that is lent
//	|'B' |id  |             borrowed: a lent arena is mapped, frames may name it from now on
//	|'W' |id  |             withdrawn: the arena is gone
//	|'D' |                  there is something to do
//
// Numbers are big-endian, as in the other providers' hellos; the letters stand in 32 bits.

const (
	helloMagic  = 0x534c5331 // "SLS1"
	helloBytes  = provider.HelloBytes
	callBytes   = helloBytes + geometryBytes
	exportBytes = 16

	noteExport   = 'A'
	noteLend     = 'L'
	noteBorrowed = 'B'
	noteWithdraw = 'W'
	noteDoorbell = 'D'
)

func encodeHello(b []byte, h *fabric.Hello, refusal errs.Kind) {
	provider.EncodeHello(b, helloMagic, h, refusal)
}

// decodeHello reads a hello. With errs.Version only the version is known.
func decodeHello(b []byte) (fabric.Hello, errs.Kind, error) {
	return provider.DecodeHello(b, helloMagic)
}

// decodeCall reads what a dialler begins with.
func decodeCall(b []byte) (fabric.Hello, geometry, error) {
	h, refusal, err := decodeHello(b)
	if err != nil {
		return h, geometry{}, err
	}
	if len(b) != callBytes || refusal != errs.OK {
		return h, geometry{}, protocolErr("no hello of a dialler")
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
	if n.kind == noteExport || n.kind == noteLend {
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
	case noteExport, noteLend:
		want = 16
	case noteWithdraw, noteBorrowed:
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
