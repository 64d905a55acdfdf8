package shm

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// connector makes the connections of a domain.
type connector struct{ d *domain }

// Devices is the host itself.
func (c connector) Devices() ([]fabric.Device, error) {
	return []fabric.Device{{Name: "memory", Up: true}}, nil
}

// refusalTimeout is how long a peer that may not connect has to send its hello before it is
// refused.
const refusalTimeout = 100 * time.Millisecond

// listener accepts sockets, as provider.Listener says. When its backlog is full those that have
// been in the hello for longest give way: see provider.Handshakes.
type listener struct {
	provider.Listener[*caller]
	d   *domain
	at  place
	met provider.Handshakes
}

// caller is a peer whose hello was read, or could not be.
type caller struct {
	provider.Met
	d    *domain
	at   place // of the listener
	conn *net.UnixConn
	cred *unix.Ucred
	geo  geometry
	fd   int // of the segment; -1: none
}

// Close implements provider.Caller.
func (c *caller) Close() error {
	c.closeFd()
	return c.conn.Close()
}

func (c *caller) closeFd() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
		c.fd = -1
	}
}

func (c connector) Listen(addr string) (fabric.Listener, error) {
	d := c.d
	if err := d.Check("Listen"); err != nil {
		return nil, err
	}
	at, err := parsePlace("shm.Listen", addr)
	if err != nil {
		return nil, err
	}
	sock, err := at.listen(d.opts.AnyClient || len(d.opts.ClientUIDs) > 0)
	if err != nil {
		return nil, errs.Wrap("shm.Listen", addr, err)
	}
	l := &listener{d: d, at: at}
	l.Open(&d.Domain, sock)
	err = provider.Serve(&l.Listener, sock.AcceptUnix, l.met.Displace, func(conn *net.UnixConn) {
		ctx, s := l.met.Add(l.Context(), d.opts.HelloTimeout)
		l.Go(func() { l.meet(ctx, s, conn) })
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.at }

// meet reads a peer's hello and queues the peer for Accept.
func (l *listener) meet(ctx context.Context, s *provider.Handshake, conn *net.UnixConn) {
	c := &caller{d: l.d, at: l.at, conn: conn, fd: -1}
	hello, err := c.greet(ctx)
	if gaveWay := l.met.Remove(s); err != nil && gaveWay {
		l.d.CountRefusal()
		_ = c.Close()
		l.Leave()
		return
	}
	if err == nil {
		c.Peer, c.Answer, err = l.d.opts.Tokens.Admit(hello)
	}
	if err == nil && c.Peer.Proof == fabric.ProofNone {
		c.Peer.Proof, c.Peer.Name = fabric.ProofHost, c.Name()
	}
	c.Err = err
	l.Ready(c)
}

// greet finds out who calls and whether it may connect.
func (c *caller) greet(ctx context.Context) (h fabric.Hello, err error) {
	if c.cred, err = cred(c.conn); err != nil {
		return h, err
	}
	opts := &c.d.opts
	may, limit := opts.AnyClient || trusted(c.cred.Uid, opts.ClientUIDs), opts.HelloTimeout
	if !may { // it holds a slot meanwhile
		limit = min(limit, refusalTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	h, err = c.readCall(ctx) // in any case: closing a socket with unread data would lose the answer
	switch {
	case !may:
		err = errs.Newf(errs.Perm, "shm", "hello", "uid %d may not connect", c.cred.Uid)
	case err == nil && c.geo.slots[1] != 0 && !opts.mutual:
		err = errs.Newf(errs.Protocol, "shm", "hello", "it wants this side's memory")
	}
	return h, err
}

func (c *caller) readCall(ctx context.Context) (h fabric.Hello, err error) {
	var b [callBytes + 1]byte
	var n, oobn, flags int
	oob := make([]byte, unix.CmsgSpace(4*4))
	err = provider.Until(ctx, c.conn, func() (err error) {
		n, oobn, flags, _, err = c.conn.ReadMsgUnix(b[:], oob)
		return err
	})
	fds := takeFds(oob[:oobn])
	if len(fds) == 1 {
		c.fd = fds[0]
	} else {
		closeAll(fds)
	}
	if err != nil {
		return h, errs.New(errs.Disconnected, "shm", "hello", err)
	}
	h, c.geo, err = decodeCall(b[:n])
	if err == nil && (c.fd < 0 || flags&unix.MSG_CTRUNC != 0) {
		err = protocolErr("a hello without memory")
	}
	return h, err
}

// Name implements provider.Caller.
func (c *caller) Name() string {
	if c.cred == nil {
		return "unknown peer"
	}
	return fmt.Sprintf("uid %d pid %d", c.cred.Uid, c.cred.Pid)
}

// Admit implements provider.Caller.
func (c *caller) Admit(mine fabric.EndpointConfig) (fabric.Endpoint, error) {
	mem, err := openMemfd(c.fd, int64(c.geo.size()))
	if err != nil {
		c.Refuse(err)
		return nil, err
	}
	if err := c.answer(&mine.Hello, errs.OK); err != nil {
		_ = unix.Munmap(mem)
		_ = c.Close()
		return nil, err
	}
	link := link{conn: c.conn, at: c.at, who: c.Name(), mem: mem, geo: c.geo, side: 1,
		near: mayBorrow(c.cred.Uid)}
	e, err := c.d.attach(link, mine, c.Peer)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	c.closeFd()
	return e, nil
}

// Refuse implements provider.Caller.
func (c *caller) Refuse(why error) {
	_ = c.answer(&fabric.Hello{Version: fabric.HelloVersion}, fabric.RefusalKind(why))
	_ = c.Close()
}

// answer cannot block: it is the first thing that this end sends.
func (c *caller) answer(h *fabric.Hello, refusal errs.Kind) error {
	var b [helloBytes]byte
	encodeHello(b[:], h, refusal)
	_, err := c.conn.Write(b[:])
	return err
}

// takeFds returns the descriptors in a packet's control data.
func takeFds(oob []byte) []int {
	if len(oob) == 0 {
		return nil
	}
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var all []int
	for i := range messages {
		if fds, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
