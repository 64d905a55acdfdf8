package tcp

import (
	"context"
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// The hello is drawn at fabric.Hello.
const (
	helloBytes = 64
	helloMagic = 0x534c4331 // "SLC1"
	joinMagic  = 0x534c434a // "SLCJ"
)

// hello is fabric.Hello with what the provider adds.
type hello struct {
	fabric.Hello
	refusal errs.Kind // of a listener: why there is no connection
	sockets uint8     // how many lanes are wanted, or agreed on; in a lane's own, which it is
	join    bool      // it is a lane's, or the listener's with the lanes' key as token
}

func (h *hello) encode() (b [helloBytes]byte) {
	binary.BigEndian.PutUint32(b[0:], helloMagic)
	if h.join {
		binary.BigEndian.PutUint32(b[0:], joinMagic)
	}
	b[26] = h.sockets
	binary.BigEndian.PutUint16(b[4:], h.Version)
	binary.BigEndian.PutUint16(b[6:], h.Features)
	binary.BigEndian.PutUint32(b[8:], h.MaxMessage)
	binary.BigEndian.PutUint32(b[12:], h.RecvDepth)
	binary.BigEndian.PutUint64(b[16:], h.Identity)
	binary.BigEndian.PutUint16(b[24:], uint16(h.refusal))
	copy(b[32:], h.Token[:])
	return b
}

// decodeHello reads a hello. With errs.Version only the version is known.
func decodeHello(b *[helloBytes]byte) (hello, error) {
	var h hello
	magic := binary.BigEndian.Uint32(b[0:])
	h.join = magic == joinMagic
	if magic != helloMagic && !h.join {
		if b[0] == 22 && b[1] == 3 { // the beginning of a TLS handshake
			return h, errs.Newf(errs.Perm, "tcp", "hello", "the peer speaks TLS, this side does not")
		}
		return h, errs.Newf(errs.Protocol, "tcp", "hello", "the peer does not speak this protocol")
	}
	h.Version = binary.BigEndian.Uint16(b[4:])
	if h.Version != fabric.HelloVersion {
		return h, errs.Newf(errs.Version, "tcp", "hello",
			"the peer speaks version %d, this side %d", h.Version, fabric.HelloVersion)
	}
	h.Features = binary.BigEndian.Uint16(b[6:])
	h.MaxMessage = binary.BigEndian.Uint32(b[8:])
	h.RecvDepth = binary.BigEndian.Uint32(b[12:])
	h.Identity = binary.BigEndian.Uint64(b[16:])
	switch refusal := errs.Kind(binary.BigEndian.Uint16(b[24:])); refusal {
	case errs.OK, errs.Perm, errs.Again, errs.Version:
		h.refusal = refusal
	default: // a peer does not choose this side's errors
		h.refusal = errs.Disconnected
	}
	h.sockets = b[26]
	if b[27] != 0 || binary.BigEndian.Uint32(b[28:]) != 0 {
		return h, errs.Newf(errs.Protocol, "tcp", "hello", "reserved bytes are not zero")
	}
	copy(h.Token[:], b[32:])
	return h, nil
}

// writeHello cannot block: it is the first thing that the socket sends, or follows a handshake.
func writeHello(g *greeting, d *domain, h hello) error {
	if size := d.opts.SocketBuffer; size > 0 {
		_ = g.tcp.SetReadBuffer(size) // the kernel has the last word anyway
		_ = g.tcp.SetWriteBuffer(size)
	}
	if d.opts.PaceBytes > 0 {
		if err := pace(g.tcp, d.opts.PaceBytes); err != nil {
			return err
		}
	}
	b := h.encode()
	_, err := g.conn.Write(b[:])
	return err
}

// pace has the kernel send no faster than that. The option is of one machine word.
func pace(c *net.TCPConn, bytes int64) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE,
			uint64(bytes))
	}); err != nil {
		return err
	}
	return failed
}

// readHello waits for the peer's hello until ctx ends.
func readHello(ctx context.Context, g *greeting) (hello, error) {
	var b [helloBytes]byte
	if g.first != nil {
		b, g.first = *g.first, nil
	} else if err := g.read(ctx, b[:]); err != nil {
		return hello{}, err
	}
	return decodeHello(&b)
}
