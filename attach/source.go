package attach

import (
	"context"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/attach/netlink"
	"github.com/sluice-storage/sluice/errs"
)

// Kernel is what a device needs of the kernel's NBD client; *netlink.Conn has it. Safe for
// concurrent use.
type Kernel interface {
	Connect(d netlink.Device) (index int, err error)
	Reconfigure(c netlink.Change) error
	Disconnect(index int) error
	Connected(index int) (bool, error)
}

// Source is what a device is made of. Safe for concurrent use.
type Source interface {
	// Link makes a connection for the kernel, in the transmission phase.
	Link(ctx context.Context) (*Link, error)

	// Size is the size by now, in bytes. Connections that are there serve all of it.
	Size(ctx context.Context) (int64, error)

	// Lost tells why nothing can be served any more, however long one waits; nil: it can.
	Lost() error

	// Close ends the source, after its links.
	Close() error
}

// Link is one connection: a pair of sockets, one end for the kernel. Its end is seen by both sides.
type Link struct {
	Export // as the server told it

	socket *os.File // the kernel's end, until it was handed over
	gone   chan struct{}

	mu    sync.Mutex
	watch int // a descriptor of its own of our end
	ended bool
}

// Export is what a server says of an export when it is chosen.
type Export struct {
	Size  int64
	Flags uint16 // transmission flags
	Least int    // the smallest block, in bytes; 0: not told
}

// newLink makes the pair of sockets, and near of our end.
func newLink() (l *Link, near net.Conn, err error) {
	ours, kernels, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	l = &Link{socket: os.NewFile(uintptr(kernels), "kernel"), gone: make(chan struct{})}
	l.watch, err = unix.FcntlInt(uintptr(ours), unix.F_DUPFD_CLOEXEC, 0)
	f := os.NewFile(uintptr(ours), "near")
	defer f.Close() // near has a descriptor of its own
	if err == nil {
		if near, err = net.FileConn(f); err != nil {
			_ = unix.Close(l.watch)
		}
	}
	if err != nil {
		_ = l.socket.Close()
		return nil, nil, errs.Wrap("attach.newLink", "", err)
	}
	return l, near, nil
}

// start watches the connection. end is called once, on a goroutine, when it has ended.
func (l *Link) start(end func()) {
	go func() {
		l.await()
		l.mu.Lock()
		l.ended = true
		_ = unix.Close(l.watch)
		l.mu.Unlock()
		end()
		close(l.gone)
	}()
}

// await waits for the end of the connection: a poll in a thread of its own, because whoever reads
// the socket may be busy with requests that do not end.
func (l *Link) await() {
	fds := []unix.PollFd{{Fd: int32(l.watch), Events: unix.POLLRDHUP}}
	for {
		n, err := unix.Poll(fds, -1)
		if n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}

// Gone is closed when the connection has ended.
func (l *Link) Gone() <-chan struct{} { return l.gone }

// handed lets go of the kernel's end, which the kernel has by now, or does not want.
func (l *Link) handed() { _ = l.socket.Close() }

// shut ends the connection, if it has not ended.
func (l *Link) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		_ = unix.Shutdown(l.watch, unix.SHUT_RDWR) // that it is gone is all that is wanted
	}
}

// Close ends the connection and waits until it is gone.
func (l *Link) Close() {
	l.handed()
	l.shut()
	<-l.gone
}

// choose does the handshake with a server at our end, which is somebody else's from now on.
func (l *Link) choose(ctx context.Context) error {
	nc, err := net.FileConn(l.socket)
	if err != nil {
		return err
	}
	l.Export, err = negotiateOwn(ctx, nc)
	_ = nc.Close() // a descriptor of its own
	return err
}

// pairBytes is what a socket pair may hold in each direction: two of the largest requests that
// suit.
const pairBytes = 2 << 20

// socketPair makes a pair of connected sockets: ours, and the kernel's.
func socketPair() (ours, kernels int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, errs.Wrap("attach.socketPair", "", err)
	}
	for _, fd := range fds {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, pairBytes) != nil {
			// Not allowed to this user: as much as everybody may have.
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, pairBytes)
		}
	}
	return fds[0], fds[1], nil
}
