package verbs

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// helloBytes is all that a connection request has room for (92 bytes less the 36 of the address
// header that the kernel puts in front).
//
//	0        2         4            8           12        20        52      56
//	|version |features |max message |recv depth |identity |token 32 |gate   |   big-endian
//
// gate is the key of the sender's gate word (see gate.go), which lies at address 0 of that key.
const helloBytes = 56

func encodeHello(h *fabric.Hello, gate uint32) [helloBytes]byte {
	var b [helloBytes]byte
	binary.BigEndian.PutUint16(b[0:], h.Version)
	binary.BigEndian.PutUint16(b[2:], h.Features)
	binary.BigEndian.PutUint32(b[4:], h.MaxMessage)
	binary.BigEndian.PutUint32(b[8:], h.RecvDepth)
	binary.BigEndian.PutUint64(b[12:], h.Identity)
	copy(b[20:52], h.Token[:])
	binary.BigEndian.PutUint32(b[52:], gate)
	return b
}

// decodeHello takes private data of any length: the network pads it.
func decodeHello(b []byte) (h fabric.Hello, gate uint32, err error) {
	if len(b) < helloBytes {
		return h, 0, errs.Newf(errs.Protocol, "verbs", "hello", "%d bytes", len(b))
	}
	h.Version = binary.BigEndian.Uint16(b[0:])
	h.Features = binary.BigEndian.Uint16(b[2:])
	h.MaxMessage = binary.BigEndian.Uint32(b[4:])
	h.RecvDepth = binary.BigEndian.Uint32(b[8:])
	h.Identity = binary.BigEndian.Uint64(b[12:])
	copy(h.Token[:], b[20:52])
	gate = binary.BigEndian.Uint32(b[52:])
	return h, gate, fabric.CheckVersion(h.Version)
}

// A refusal is the private data of a rejected connection request.
//
//	0           4     6        8
//	|magic SLRJ |kind |version |   big-endian
const refusalBytes = 8

const refusalMagic = 0x534c524a

func encodeRefusal(kind errs.Kind) [refusalBytes]byte {
	var b [refusalBytes]byte
	binary.BigEndian.PutUint32(b[0:], refusalMagic)
	binary.BigEndian.PutUint16(b[4:], uint16(kind))
	binary.BigEndian.PutUint16(b[6:], fabric.HelloVersion)
	return b
}

// Reasons of connection managers, of the InfiniBand specification's table for REJ messages.
const (
	rejectNoService = 8
	rejectStale     = 10
	rejectConsumer  = 28
)

// decodeRefusal turns a rejection into the dialler's error. A peer must not choose this side's
// errors, so only the kinds of fabric.RefusalKind are kept. One without a refusal comes from the
// peer's connection manager, with its reason.
func decodeRefusal(b []byte, reason int) error {
	if len(b) >= refusalBytes && binary.BigEndian.Uint32(b) == refusalMagic {
		kind := errs.Kind(binary.BigEndian.Uint16(b[4:]))
		if kind == errs.Version {
			theirs := binary.BigEndian.Uint16(b[6:])
			return errs.Newf(errs.Version, "verbs", "hello", "the peer speaks version %d of the network, "+
				"this side %d: %s", theirs, fabric.HelloVersion,
				wire.Remedy(int64(theirs), fabric.HelloVersion))
		}
		return errs.Newf(fabric.RefusalKind(kind), "verbs", "hello", "refused by the peer")
	}
	why := "its connection manager refuses"
	switch reason {
	case rejectNoService:
		why = "nobody listens"
	case rejectStale:
		why = "it has not heard of the end of an earlier connection"
	case rejectConsumer:
		why = "it ended the connection"
	}
	return errs.Newf(errs.Disconnected, "verbs", "hello", "%s (reason %d)", why, reason)
}
