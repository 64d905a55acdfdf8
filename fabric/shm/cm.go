package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// connector makes the connections of a domain.
type connector struct{ d *domain }

// Devices is the host itself.
func (c connector) Devices() ([]fabric.Device, error) {
	return []fabric.Device{{Name: "memory", Up: true}}, nil
}

// backlog is how many peers of a listener may be in the hello, or through it and not yet accepted.
const backlog = 64

// refusalTimeout is how long a peer that is not allowed to connect may take to say so.
const refusalTimeout = 100 * time.Millisecond

// listener accepts sockets and reads hellos in the background, so that a slow peer holds up nobody.
type listener struct {
	d      *domain
	at     place
	sock   *net.UnixListener
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	slots  chan struct{} // one for each peer between its accept and Accept
	ready  chan *caller
	wg     sync.WaitGroup
	once   sync.Once
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
	if d.ctx.Err() != nil {
		return nil, errClosed("shm.Listen")
	}
	at, err := parsePlace("shm.Listen", addr)
	if err != nil {
		return nil, err
	}
	sock, err := at.listen(d.opts.AnyClient || len(d.opts.ClientUIDs) > 0)
	if err != nil {
		return nil, errs.Wrap("shm.Listen", addr, err)
	}
	l := &listener{
		d: d, at: at, sock: sock, slots: make(chan struct{}, backlog),
		ready: make(chan *caller, backlog),
	}
	l.ctx, l.cancel = context.WithCancel(d.ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = sock.Close()
		l.cancel()
		return nil, errClosed("shm.Listen")
	}
	d.listeners[l] = struct{}{}
	l.wg.Go(l.acceptSockets)
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.at }

// acceptSockets runs until the listener is closed.
func (l *listener) acceptSockets() {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		conn, err := l.sock.AcceptUnix()
		switch {
		case err == nil:
			l.wg.Go(func() { l.meet(conn) })
		case errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil:
			return
		default: // out of descriptors, or a peer that was gone again
			<-l.slots
			select {
			case <-time.After(10 * time.Millisecond):
			case <-l.ctx.Done():
			}
		}
	}
}

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
		ctx, cancel := context.WithTimeout(l.ctx, limit)
		defer cancel()
		c.err = c.readCall(ctx) // in any case: what is unread when it is refused costs the answer
		if !may {
			c.err = errs.Newf(errs.Perm, "shm", "hello", "uid %d may not connect", c.cred.Uid)
		}
	}
	if c.err == nil && c.geo.slots[1] != 0 && !l.d.opts.mutual {
		c.err = errs.Newf(errs.Protocol, "shm", "hello", "it wants this side's memory")
	}
	l.ready <- c // never blocks: there are no more slots than places
}

func (c *caller) readCall(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	var b [callBytes + 1]byte
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := c.conn.ReadMsgUnix(b[:], oob)
	if !stop() {
		err = ctx.Err()
	}
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
	if l.ctx.Err() != nil {
		return nil, errClosed("shm.Accept")
	}
	var c *caller
	select {
	case c = <-l.ready:
		<-l.slots
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, errClosed("shm.Accept")
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
	mine, err := cfg(peer)
	if err != nil {
		return nil, err
	}
	if err := l.d.reserve(&mine); err != nil {
		return nil, err
	}
	mem, err := openMemfd(c.fd, int64(c.geo.size()))
	if err != nil {
		l.d.unreserve(&mine)
		return nil, err
	}
	mine.Hello.Token = token
	err = c.answer(&mine.Hello, errs.OK)
	if err == nil && mine.Hello.Version != fabric.HelloVersion {
		err = errs.Newf(errs.Version, "shm.Accept", "", "this side says %d", mine.Hello.Version)
	}
	if err != nil {
		l.d.unreserve(&mine)
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

func (l *listener) Close() error {
	l.once.Do(func() {
		l.cancel()
		_ = l.sock.Close()
		l.wg.Wait()
		for len(l.ready) > 0 { // an Accept that still runs may be quicker, and is welcome to it
			select {
			case c := <-l.ready:
				c.close()
			default:
			}
		}
		l.d.mu.Lock()
		defer l.d.mu.Unlock()
		delete(l.d.listeners, l)
	})
	return nil
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
