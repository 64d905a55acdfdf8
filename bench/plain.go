package bench

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// PlainTCP is the name of the ceiling that every network has, PlainUnix that of one host.
const (
	PlainTCP  = "plain Go TCP"
	PlainUnix = "unix socket"
)

// askBytes is how long a plain request is that is answered with more.
const askBytes = 8

// What a plain peer does with a connection. Both sides use one buffer of the size that is moved.
const (
	plainEcho   = 1 // send back every size bytes that came
	plainSink   = 2 // read; tell how many bytes came, after warmBytes and at the end
	plainSource = 3 // send without end
	plainAnswer = 4 // send size bytes for every askBytes that came
	plainTake   = 5 // send askBytes for every size bytes that came
)

const (
	plainMax = 64 << 20 // the largest size that a plain peer takes

	// A stream's first bytes do not count: the kernel widens its windows while they pass.
	warmBytes = 8 << 20
)

// ServePlain is the plain peer of bench fabric and bench net, over TCP or a unix socket: nothing
// but a socket and one buffer. The client says what it wants in the first 16 bytes.
//
//	0     8     16
//	|what |size |    big-endian
//
// It returns when the listener is closed.
func ServePlain(ln net.Listener) { accept(ln, servePlain) }

func servePlain(conn net.Conn) error {
	var ask [16]byte
	if _, err := io.ReadFull(conn, ask[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint64(ask[8:])
	if size == 0 || size > plainMax {
		return errs.Newf(errs.Invalid, "bench peer", "", "size %d", size)
	}
	buf := touched(int(size))
	switch binary.BigEndian.Uint64(ask[:]) {
	case plainEcho:
		return plainEchoes(conn, buf)
	case plainSink:
		return plainSinks(conn, buf)
	case plainAnswer:
		return plainAnswers(conn, make([]byte, askBytes), buf)
	case plainTake:
		return plainAnswers(conn, buf, make([]byte, askBytes))
	case plainSource:
		for {
			if _, err := conn.Write(buf); err != nil {
				return err
			}
		}
	}
	return errs.Newf(errs.Invalid, "bench peer", "", "neither echo nor sink nor source")
}

// touched is memory with something in it: what was never written is one page of zeroes.
func touched(size int) []byte {
	buf := make([]byte, size)
	for i := range buf {
		buf[i] = byte(i)
	}
	return buf
}

func plainEchoes(conn net.Conn, buf []byte) error {
	for {
		if _, err := io.ReadFull(conn, buf); err != nil {
			return err
		}
		if _, err := conn.Write(buf); err != nil {
			return err
		}
	}
}

func plainAnswers(conn net.Conn, in, out []byte) error {
	for {
		if _, err := io.ReadFull(conn, in); err != nil {
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
	}
}

func plainSinks(conn net.Conn, buf []byte) error {
	var total [8]byte
	warm := true
	for sum := uint64(0); ; {
		n, err := io.ReadFull(conn, buf)
		sum += uint64(n)
		ended := err != nil
		if ended || warm && sum >= warmBytes {
			warm = false
			binary.BigEndian.PutUint64(total[:], sum)
			if _, err = conn.Write(total[:]); ended || err != nil {
				return err
			}
		}
	}
}

// sunk waits until a sink tells that it has read everything.
func sunk(conn net.Conn, want int64) error {
	var total [8]byte
	if _, err := io.ReadFull(conn, total[:]); err != nil {
		return err
	}
	if sum := binary.BigEndian.Uint64(total[:]); sum != uint64(want) {
		return errs.Newf(errs.IO, "bench peer", "", "%d of %d bytes came", sum, want)
	}
	return nil
}

// plainConn is what TCP and unix sockets have in common.
type plainConn interface {
	net.Conn
	CloseWrite() error
}

// dialPlain connects to a ServePlain: by a unix socket where addr is a path or an abstract name.
func dialPlain(ctx context.Context, addr string, what, size int) (plainConn, error) {
	var d net.Dialer
	network := "tcp"
	if strings.HasPrefix(addr, "/") || strings.HasPrefix(addr, "@") {
		network = "unix"
	}
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	var ask [16]byte
	binary.BigEndian.PutUint64(ask[:], uint64(what))
	binary.BigEndian.PutUint64(ask[8:], uint64(size))
	if _, err := conn.Write(ask[:]); err != nil {
		conn.Close()
		return nil, err
	}
	return conn.(plainConn), nil
}

// plain is one way of using a plain peer. It has a connection of its own, as long as its case runs.
type plain struct {
	addr string
	size int
	what int
	conn plainConn
	buf  []byte
}

func (p *plain) open(ctx context.Context) error {
	if p.conn != nil {
		return nil
	}
	p.buf = touched(p.size)
	var err error
	p.conn, err = dialPlain(ctx, p.addr, p.what, p.size)
	return err
}

func (p *plain) close() error {
	if p.conn == nil {
		return nil
	}
	return p.conn.Close()
}

// plainPings measures round trips.
func plainPings(addr string, size int) Contender {
	p := &plain{addr: addr, size: size, what: plainEcho}
	measure := func(ctx context.Context, d time.Duration) (float64, error) {
		if err := p.open(ctx); err != nil {
			return 0, err
		}
		return MedianLatency(ctx, d, func() error {
			if _, err := p.conn.Write(p.buf); err != nil {
				return err
			}
			_, err := io.ReadFull(p.conn, p.buf)
			return err
		})
	}
	return Contender{Provider: PlainTCP, Depth: 1, Measure: measure, Close: p.close}
}

// plainWrites streams to the peer, and counts when the peer has told that it has everything.
func plainWrites(addr string, size int) stream {
	return func(ctx context.Context, d time.Duration) (moved, error) {
		conn, err := dialPlain(ctx, addr, plainSink, size)
		if err != nil {
			return moved{}, err
		}
		defer conn.Close()
		buf := touched(size)
		warm := int64(0)
		for warm < warmBytes {
			if _, err := conn.Write(buf); err != nil {
				return moved{}, err
			}
			warm += int64(size)
		}
		if err := sunk(conn, warm); err != nil {
			return moved{}, err
		}
		m := moved{begin: time.Now()}
		for end := m.begin.Add(d); ctx.Err() == nil && time.Now().Before(end); {
			if _, err := conn.Write(buf); err != nil {
				return m, err
			}
			m.add(1, size)
		}
		if err := conn.CloseWrite(); err != nil {
			return m, err
		}
		if err := sunk(conn, warm+m.bytes); err != nil {
			return m, err
		}
		m.took = time.Since(m.begin)
		return m, ctx.Err()
	}
}

// plainReads has the peer stream to this side.
func plainReads(addr string, size int) stream {
	return func(ctx context.Context, d time.Duration) (moved, error) {
		conn, err := dialPlain(ctx, addr, plainSource, size)
		if err != nil {
			return moved{}, err
		}
		defer conn.Close()
		buf := touched(size)
		for warm := 0; warm < warmBytes; warm += size {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return moved{}, err
			}
		}
		m := moved{begin: time.Now()}
		for m.took < d && ctx.Err() == nil {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return m, err
			}
			m.add(1, size)
			m.took = time.Since(m.begin)
		}
		return m, ctx.Err()
	}
}

// plainRequests has depth requests of size bytes under way, each written by itself, each answered.
func plainRequests(addr string, size, depth int) stream {
	return func(ctx context.Context, d time.Duration) (moved, error) {
		conn, err := dialPlain(ctx, addr, plainEcho, size)
		if err != nil {
			return moved{}, err
		}
		defer conn.Close()
		buf, answers := touched(size), make([]byte, size*depth)
		m := moved{begin: time.Now()}
		asked, bytes := 0, 0
		for m.took < d && ctx.Err() == nil {
			for ; asked < m.ops+depth; asked++ {
				if _, err := conn.Write(buf); err != nil {
					return m, err
				}
			}
			n, err := conn.Read(answers)
			if err != nil {
				return m, err
			}
			bytes += n
			m.add(bytes/size, size)
			bytes %= size
			m.took = time.Since(m.begin)
		}
		return m, ctx.Err()
	}
}

// plainTrades has depth requests of out bytes under way, each written by itself, each answered with
// in bytes. The larger of the two is what moves.
func plainTrades(addr string, out, in, depth int) stream {
	what, size := plainAnswer, in
	if out > in {
		what, size = plainTake, out
	}
	return func(ctx context.Context, d time.Duration) (moved, error) {
		conn, err := dialPlain(ctx, addr, what, size)
		if err != nil {
			return moved{}, err
		}
		defer conn.Close()
		ask, answers := touched(out), make([]byte, in*min(depth, max(1, mib/in)))
		m := moved{begin: time.Now()}
		asked, bytes := 0, 0
		for m.took < d && ctx.Err() == nil {
			for ; asked < m.ops+depth; asked++ {
				if _, err := conn.Write(ask); err != nil {
					return m, err
				}
			}
			n, err := conn.Read(answers)
			if err != nil {
				return m, err
			}
			bytes += n
			m.add(bytes/in, size)
			bytes %= in
			m.took = time.Since(m.begin)
		}
		return m, ctx.Err()
	}
}
