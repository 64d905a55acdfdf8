package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// connector makes the connections of a domain.
type connector struct{ d *domain }

// backlog is how many peers of a listener may be in the hello, or through it and not yet accepted.
const backlog = 64

// listener accepts sockets and reads hellos in the background, so that a slow peer holds up nobody.
type listener struct {
	d      *domain
	tcp    *net.TCPListener
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	slots  chan struct{} // one for each peer between its accept and Accept
	ready  chan caller
	wg     sync.WaitGroup
	once   sync.Once
}

// caller is a peer whose hello was read, or could not be.
type caller struct {
	conn  *net.TCPConn
	hello fabric.Hello
	err   error
}

func (c connector) Listen(addr string) (fabric.Listener, error) {
	d := c.d
	if d.ctx.Err() != nil {
		return nil, errClosed("tcp.Listen")
	}
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, errs.New(errs.Invalid, "tcp.Listen", addr, err)
	}
	if !d.opts.AllowRemote && !at.IP.IsLoopback() {
		return nil, errs.Newf(errs.Perm, "tcp.Listen", addr,
			"no cluster key yet: only loopback addresses can be listened on")
	}
	sock, err := net.ListenTCP("tcp", at)
	if err != nil {
		return nil, errs.Wrap("tcp.Listen", addr, err)
	}
	l := &listener{
		d: d, tcp: sock, slots: make(chan struct{}, backlog), ready: make(chan caller, backlog),
	}
	l.ctx, l.cancel = context.WithCancel(d.ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = sock.Close()
		l.cancel()
		return nil, errClosed("tcp.Listen")
	}
	d.listeners[l] = struct{}{}
	l.wg.Go(l.acceptSockets)
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.tcp.Addr() }

// acceptSockets runs until the listener is closed.
func (l *listener) acceptSockets() {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		conn, err := l.tcp.AcceptTCP()
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
func (l *listener) meet(conn *net.TCPConn) {
	ctx, cancel := context.WithTimeout(l.ctx, l.d.opts.HelloTimeout)
	defer cancel()
	hello, err := readHello(ctx, conn)
	if err != nil {
		err = errs.Wrap("tcp.Accept", conn.RemoteAddr().String(), err)
	}
	l.ready <- caller{conn, hello, err} // never blocks: there are no more slots than places
}

func (l *listener) Accept(
	ctx context.Context, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	if l.ctx.Err() != nil {
		return nil, errClosed("tcp.Accept")
	}
	var c caller
	select {
	case c = <-l.ready:
		<-l.slots
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, errClosed("tcp.Accept")
	}
	e, err := l.welcome(&c, cfg)
	if err != nil {
		_ = c.conn.Close()
		return nil, err
	}
	return e, nil
}

// welcome answers a peer's hello.
func (l *listener) welcome(
	c *caller, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	if errs.KindOf(c.err) == errs.Version { // it shall know why
		_ = writeHello(c.conn, l.d, &fabric.Hello{Version: fabric.HelloVersion})
	}
	if c.err != nil {
		return nil, c.err
	}
	mine, err := cfg(fabric.Peer{Hello: c.hello})
	if err != nil {
		return nil, errs.Wrap("tcp.Accept", c.conn.RemoteAddr().String(), err)
	}
	if err := l.d.reserve(&mine); err != nil {
		return nil, err
	}
	err = writeHello(c.conn, l.d, &mine.Hello)
	if err == nil && mine.Hello.Version != fabric.HelloVersion {
		err = errs.Newf(errs.Version, "tcp.Accept", "", "this side says %d", mine.Hello.Version)
	}
	if err != nil {
		l.d.unreserve(&mine)
		return nil, errs.Wrap("tcp.Accept", c.conn.RemoteAddr().String(), err)
	}
	return l.d.attach(c.conn, mine, c.hello)
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.cancel()
		_ = l.tcp.Close()
		l.wg.Wait()
		for len(l.ready) > 0 { // an Accept that still runs may be quicker, and is welcome to it
			select {
			case c := <-l.ready:
				_ = c.conn.Close()
			default:
			}
		}
		l.d.mu.Lock()
		defer l.d.mu.Unlock()
		delete(l.d.listeners, l)
	})
	return nil
}

func (c connector) Dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	d := c.d
	if d.ctx.Err() != nil {
		return nil, errClosed("tcp.Dial")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	e, err := d.dial(ctx, addr, cfg)
	if err == nil {
		return e, nil
	}
	switch {
	case d.ctx.Err() != nil:
		err = errClosed("tcp.Dial")
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	return nil, errs.Wrap("tcp.Dial", addr, err)
}

func (d *domain) dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	if err := d.reserve(&cfg); err != nil {
		return nil, err
	}
	conn, hello, err := d.greet(ctx, addr, &cfg)
	if err != nil {
		d.unreserve(&cfg)
		return nil, err
	}
	e, err := d.attach(conn, cfg, hello)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return e, nil
}

// greet connects a socket and exchanges hellos.
func (d *domain) greet(ctx context.Context, addr string, cfg *fabric.EndpointConfig) (
	*net.TCPConn, fabric.Hello, error,
) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fabric.Hello{}, err
	}
	conn := c.(*net.TCPConn)
	var hello fabric.Hello
	if err = writeHello(conn, d, &cfg.Hello); err == nil {
		hello, err = readHello(ctx, conn)
	}
	if err == nil && cfg.Hello.Version != fabric.HelloVersion {
		err = errs.Newf(errs.Version, "tcp", "hello", "the peer speaks version %d", hello.Version)
	}
	if err != nil {
		_ = conn.Close()
		return nil, hello, err
	}
	return conn, hello, nil
}

// reserve checks cfg, fills in its hello and sets its places in the completion queues aside.
func (d *domain) reserve(cfg *fabric.EndpointConfig) error {
	if err := fabric.CheckEndpoint(&d.caps, cfg); err != nil {
		return err
	}
	send, ok1 := cfg.SendCQ.(*cq)
	recv, ok2 := cfg.RecvCQ.(*cq)
	if !ok1 || !ok2 || send.d != d || recv.d != d {
		return errs.Newf(errs.Invalid, "fabric.EndpointConfig", "", "a queue of another domain")
	}
	if err := send.reserve(cfg.SendDepth); err != nil {
		return err
	}
	if err := recv.reserve(cfg.RecvDepth); err != nil {
		send.unreserve(cfg.SendDepth)
		return err
	}
	return nil
}

func (d *domain) unreserve(cfg *fabric.EndpointConfig) {
	cfg.SendCQ.(*cq).unreserve(cfg.SendDepth)
	cfg.RecvCQ.(*cq).unreserve(cfg.RecvDepth)
}

// attach makes a connection whose hellos are exchanged an endpoint. On failure the reservation is
// given back and the socket stays the caller's.
func (d *domain) attach(conn *net.TCPConn, cfg fabric.EndpointConfig, peer fabric.Hello) (
	fabric.Endpoint, error,
) {
	e, err := newEndpoint(d, conn, cfg)
	if err == nil {
		e.peer = fabric.Peer{Hello: peer}
		err = d.adopt(e)
	}
	if err != nil {
		d.unreserve(&cfg)
		return nil, err
	}
	e.start()
	return e, nil
}

// writeHello cannot block: it is the first thing that the socket sends.
func writeHello(conn *net.TCPConn, d *domain, h *fabric.Hello) error {
	if size := d.opts.SocketBuffer; size > 0 {
		_ = conn.SetReadBuffer(size) // the kernel has the last word anyway
		_ = conn.SetWriteBuffer(size)
	}
	b := encodeHello(h)
	_, err := conn.Write(b[:])
	return err
}

// readHello waits for the peer's hello until ctx ends.
func readHello(ctx context.Context, conn *net.TCPConn) (fabric.Hello, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	var b [helloBytes]byte
	_, err := io.ReadFull(conn, b[:])
	if !stop() {
		return fabric.Hello{}, ctx.Err()
	}
	if err != nil {
		return fabric.Hello{}, errs.New(errs.Disconnected, "tcp", "hello", err)
	}
	return decodeHello(&b)
}
