package provider

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// HelloBytes is the size of a hello on a socket. Numbers are big-endian.
//
//	0      4        6         8            12          16        24       26    32     64
//	|magic |version |features |max message |recv depth |identity |refusal |zero |token |
//
// refusal, in a listener's answer, is the errs.Kind with which it refuses the peer, or 0.
const HelloBytes = 64

// EncodeHello writes a hello.
func EncodeHello(b []byte, magic uint32, h *fabric.Hello, refusal errs.Kind) {
	_ = b[HelloBytes-1]
	binary.BigEndian.PutUint32(b[0:], magic)
	binary.BigEndian.PutUint16(b[4:], h.Version)
	binary.BigEndian.PutUint16(b[6:], h.Features)
	binary.BigEndian.PutUint32(b[8:], h.MaxMessage)
	binary.BigEndian.PutUint32(b[12:], h.RecvDepth)
	binary.BigEndian.PutUint64(b[16:], h.Identity)
	binary.BigEndian.PutUint16(b[24:], uint16(refusal))
	clear(b[26:32])
	copy(b[32:HelloBytes], h.Token[:])
}

// DecodeHello reads a hello. With errs.Version only the version is known. A refusal is one of the
// kinds that fabric.RefusalKind tells: a peer does not choose this side's errors.
func DecodeHello(b []byte, magic uint32) (h fabric.Hello, refusal errs.Kind, err error) {
	if len(b) < HelloBytes || binary.BigEndian.Uint32(b[0:]) != magic {
		return h, errs.OK, errs.Newf(errs.Protocol, "fabric", "hello",
			"the peer does not speak this protocol")
	}
	h.Version = binary.BigEndian.Uint16(b[4:])
	if err := fabric.CheckVersion(h.Version); err != nil {
		return h, errs.OK, err
	}
	h.Features = binary.BigEndian.Uint16(b[6:])
	h.MaxMessage = binary.BigEndian.Uint32(b[8:])
	h.RecvDepth = binary.BigEndian.Uint32(b[12:])
	h.Identity = binary.BigEndian.Uint64(b[16:])
	if kind := errs.Kind(binary.BigEndian.Uint16(b[24:])); kind != errs.OK {
		refusal = fabric.RefusalKind(kind)
	}
	if binary.BigEndian.Uint16(b[26:]) != 0 || binary.BigEndian.Uint32(b[28:]) != 0 {
		return h, refusal, errs.Newf(errs.Protocol, "fabric", "hello", "reserved bytes are not zero")
	}
	copy(h.Token[:], b[32:])
	return h, refusal, nil
}

// CheckAnswer checks a listener's hello for the dialler: nil, or why there is no connection.
func CheckAnswer(mine, theirs *fabric.Hello, refusal errs.Kind) error {
	switch {
	case refusal == errs.Version:
		return errs.Newf(refusal, "fabric.Dial", "hello", "the listener does not speak version %d of "+
			"the network, which is this side's: %s", mine.Version,
			wire.Remedy(int64(theirs.Version), int64(mine.Version)))
	case refusal != errs.OK:
		return errs.Newf(refusal, "fabric.Dial", "hello", "refused by the listener")
	case mine.Version != fabric.HelloVersion:
		return errs.Newf(errs.Version, "fabric.Dial", "hello", "the peer speaks version %d of the "+
			"network, this side says %d: %s", theirs.Version, mine.Version,
			wire.Remedy(int64(theirs.Version), int64(mine.Version)))
	}
	return fabric.CheckAnswer(mine, theirs)
}
