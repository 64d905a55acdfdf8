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

// refusalTimeout is how long a peer that is not allowed to connect may take to say so.
const refusalTimeout = 100 * time.Millisecond

// listener is drawn in package provider.
type listener struct {
	provider.Listener[*caller]
	d  *domain
	at place
}

// caller is a peer whose hello was read, or could not be.
type caller struct {
	conn  *net.UnixConn
	cred  *unix.Ucred
	hello fabric.Hello
	geo   geometry
	fd    int // of the segment; -1: none
	err   error
}

func (c *caller) close() {
	_ = c.conn.Close()
	c.closeFd()
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
	if err := l.Open(&d.Domain, sock, (*caller).close); err != nil {
		return nil, err
	}
	provider.Serve(&l.Listener, sock.AcceptUnix, nil, func(conn *net.UnixConn) {
		l.Go(func() { l.meet(conn) })
	})
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.at }

// meet reads a peer's hello and puts it where Accept finds it.
func (l *listener) meet(conn *net.UnixConn) {
	c := &caller{conn: conn, fd: -1}
	c.cred, c.err = cred(conn)
	if c.err == nil {
		may := l.d.opts.AnyClient || trusted(c.cred.Uid, l.d.opts.ClientUIDs)
		limit := l.d.opts.HelloTimeout
		if !may { // it holds a slot meanwhile
			limit = min(limit, refusalTimeout)
		}
		ctx, cancel := context.WithTimeout(l.Context(), limit)
		defer cancel()
		c.err = c.readCall(ctx) // in any case: what is unread when it is refused costs the answer
		if !may {
			c.err = errs.Newf(errs.Perm, "shm", "hello", "uid %d may not connect", c.cred.Uid)
		}
	}
	if c.err == nil && c.geo.slots[1] != 0 && !l.d.opts.mutual {
		c.err = errs.Newf(errs.Protocol, "shm", "hello", "it wants this side's memory")
	}
	l.Ready(c)
}

func (c *caller) readCall(ctx context.Context) error {
	var b [callBytes + 1]byte
	var n, oobn, flags int
	oob := make([]byte, unix.CmsgSpace(4*4))
	err := provider.Until(ctx, c.conn, func() (err error) {
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
		return errs.New(errs.Disconnected, "shm", "hello", err)
	}
	c.hello, c.geo, err = decodeCall(b[:n])
	if err == nil && (c.fd < 0 || flags&unix.MSG_CTRUNC != 0) {
		err = protocolErr("a hello without memory")
	}
	return err
}

func (l *listener) Accept(
	ctx context.Context, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	c, err := l.Next(ctx)
	if err != nil {
		return nil, err
	}
	e, err := l.welcome(c, cfg)
	if err != nil {
		var none fabric.Hello
		none.Version = fabric.HelloVersion
		_ = c.answer(&none, fabric.RefusalKind(err)) // it shall know why
		c.close()
		return nil, errs.Wrap("shm.Accept", c.who(), err)
	}
	return e, nil
}

func (c *caller) who() string {
	if c.cred == nil {
		return "unknown peer"
	}
	return fmt.Sprintf("uid %d pid %d", c.cred.Uid, c.cred.Pid)
}

// welcome takes a peer in.
func (l *listener) welcome(
	c *caller, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	if c.err != nil {
		return nil, c.err
	}
	peer, token, err := l.d.opts.Tokens.Admit(c.hello)
	if err != nil {
		return nil, err
	}
	if peer.Proof == fabric.ProofNone {
		peer.Proof, peer.Name = fabric.ProofHost, c.who()
	}
	mine, err := l.d.Configure(peer, token, cfg)
	if err != nil {
		return nil, err
	}
	mem, err := openMemfd(c.fd, int64(c.geo.size()))
	if err != nil {
		l.d.Unreserve(&mine)
		return nil, err
	}
	if err := c.answer(&mine.Hello, errs.OK); err != nil {
		l.d.Unreserve(&mine)
		_ = unix.Munmap(mem)
		return nil, err
	}
	link := link{conn: c.conn, at: l.at, who: c.who(), mem: mem, geo: c.geo, side: 1}
	e, err := l.d.attach(link, mine, peer)
	if err == nil {
		c.closeFd()
	}
	return e, err
}

// answer cannot block: it is the first thing that this end sends.
func (c *caller) answer(h *fabric.Hello, refusal errs.Kind) error {
	var b [helloBytes]byte
	encodeHello(b[:], h, refusal)
	_, err := c.conn.Write(b[:])
	return err
}

// takeFds finds the descriptors in what came beside a packet.
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
