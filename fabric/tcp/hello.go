package tcp

import (
	"context"
	"net"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// The hello is drawn at provider.HelloBytes.
const (
	helloBytes = provider.HelloBytes
	helloMagic = 0x534c4331 // "SLC1"
)

// hello is fabric.Hello with what the provider adds.
type hello struct {
	fabric.Hello
	refusal errs.Kind // of a listener: why there is no connection
}

func (h *hello) encode() (b [helloBytes]byte) {
	provider.EncodeHello(b[:], helloMagic, &h.Hello, h.refusal)
	return b
}

// decodeHello reads a hello. With errs.Version only the version is known.
func decodeHello(b *[helloBytes]byte) (h hello, err error) {
	if b[0] == 22 && b[1] == 3 { // the beginning of a TLS handshake
		return h, errs.Newf(errs.Perm, "tcp", "hello", "the peer speaks TLS, this side does not")
	}
	h.Hello, h.refusal, err = provider.DecodeHello(b[:], helloMagic)
	return h, err
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
