package shm

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

func (c connector) Dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	return c.d.Dial(ctx, addr, &cfg, func(ctx context.Context) (fabric.Endpoint, error) {
		return c.d.dial(ctx, addr, cfg)
	})
}

func (d *domain) dial(ctx context.Context, addr string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	l, hello, err := d.greet(ctx, addr, &cfg.Hello)
	if err != nil {
		return nil, err
	}
	peer := fabric.Peer{Hello: hello, Proof: fabric.ProofHost, Name: l.who}
	e, err := d.attach(l, cfg, peer)
	if err != nil {
		_ = l.conn.Close()
		return nil, err
	}
	return e, nil
}

// greet connects a socket and exchanges hellos. The listener gets nothing before its user is known.
func (d *domain) greet(ctx context.Context, addr string, mine *fabric.Hello) (
	link, fabric.Hello, error,
) {
	var none fabric.Hello
	at, err := parsePlace("shm.Dial", addr)
	if err != nil {
		return link{}, none, err
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unixpacket", string(at))
	if err != nil {
		return link{}, none, errs.New(errs.Disconnected, "shm", "connect", err)
	}
	l := link{conn: c.(*net.UnixConn), at: at, side: 0}
	hello, err := d.call(ctx, &l, mine)
	if err != nil {
		_ = l.conn.Close()
		if l.mem != nil {
			_ = unix.Munmap(l.mem)
		}
		return link{}, none, err
	}
	return l, hello, nil
}

// call checks who listens, passes the segment and reads the answer.
func (d *domain) call(ctx context.Context, l *link, mine *fabric.Hello) (fabric.Hello, error) {
	var theirs fabric.Hello
	who, err := cred(l.conn)
	if err != nil {
		return theirs, errs.Wrap("shm", "SO_PEERCRED", err)
	}
	if !trusted(who.Uid, d.opts.ServerUIDs) {
		return theirs, errs.Newf(errs.Perm, "shm", "hello",
			"uid %d listens there, whom this side does not trust", who.Uid)
	}
	l.who = fmt.Sprintf("uid %d pid %d", who.Uid, who.Pid)
	l.near = mayBorrow(who.Uid)
	l.geo = geometry{
		ring: uint32(d.opts.Ring), slots: [2]uint32{uint32(d.opts.Grants)}, borrows: true,
	}
	if d.opts.Arenas == nil {
		l.geo.slots[0] = 0
	}
	if d.opts.mutual {
		l.geo.slots[1] = l.geo.slots[0]
	}
	fd, mem, err := newMemfd("sluice-segment", l.geo.size(), false)
	if err != nil {
		return theirs, err
	}
	l.mem = mem
	var b [callBytes]byte
	encodeHello(b[:], mine, errs.OK)
	l.geo.encode(b[helloBytes:])
	_, _, err = l.conn.WriteMsgUnix(b[:], unix.UnixRights(fd), nil)
	_ = unix.Close(fd)
	if err != nil {
		return theirs, errs.New(errs.Disconnected, "shm", "hello", err)
	}
	return readAnswer(ctx, l.conn, mine)
}

// readAnswer waits for the listener's hello until ctx ends.
func readAnswer(ctx context.Context, conn *net.UnixConn, mine *fabric.Hello) (
	fabric.Hello, error,
) {
	var b [helloBytes + 1]byte
	n := 0
	err := provider.Until(ctx, conn, func() (err error) {
		n, err = conn.Read(b[:])
		return err
	})
	if err != nil {
		return fabric.Hello{}, errs.New(errs.Disconnected, "shm", "hello", err)
	}
	theirs, refusal, err := decodeHello(b[:n])
	if err == nil && n != helloBytes {
		err = protocolErr("no hello of a listener")
	}
	if err == nil {
		err = provider.CheckAnswer(mine, &theirs, refusal)
	}
	return theirs, err
}

// attach makes an endpoint of a connection whose hellos are exchanged. On failure the segment is
// unmapped and the socket stays the caller's.
func (d *domain) attach(l link, cfg fabric.EndpointConfig, peer fabric.Peer) (
	fabric.Endpoint, error,
) {
	e, err := newEndpoint(d, l, cfg, peer)
	if err == nil {
		err = d.Adopt(&e.Endpoint, e, 1)
	}
	if err != nil {
		_ = unix.Munmap(l.mem)
		return nil, err
	}
	e.start()
	return e, nil
}
