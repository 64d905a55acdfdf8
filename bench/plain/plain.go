// Package plain is the ceiling that every network has: nothing but a socket and one buffer at each
// end. Serve is the other process; the other functions measure against it, each on a connection of
// its own for each measurement.
//
// It knows nothing of sluice's own network. Read Serve first.
package plain

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/errs"
)

// TCP is the name of the ceiling that every network has, Unix that of one host.
const (
	TCP  = "plain Go TCP"
	Unix = "unix socket"
)

// AskBytes is how long a request is that is answered with more.
const AskBytes = 8

// What the peer does with a connection. Both sides use one buffer of the size that is moved.
const (
	doEcho   = 1 // send back every size bytes that came
	doSink   = 2 // read; tell how many bytes came, after warmBytes and at the end
	doSource = 3 // send without end
	doAnswer = 4 // send size bytes for every AskBytes that came
	doTake   = 5 // send AskBytes for every size bytes that came
)

const (
	sizeMax = 64 << 20 // the largest size that a peer takes

	// A stream's first bytes do not count: the kernel widens its windows while they pass.
	warmBytes = 8 << 20
)

// Serve is the other side, over TCP or a unix socket. The client says what it wants in the first 16
// bytes.
//
//	0     8     16
//	|what |size |    big-endian
//
// It returns when the listener is closed and all clients have left.
func Serve(ln net.Listener) { partner.Accept(ln, serve) }

func serve(conn net.Conn) error {
	var ask [16]byte
	if _, err := io.ReadFull(conn, ask[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint64(ask[8:])
	if size == 0 || size > sizeMax {
		return errs.Newf(errs.Invalid, "bench peer", "", "size %d", size)
	}
	buf := Touched(int(size))
	switch binary.BigEndian.Uint64(ask[:]) {
	case doEcho:
		return answers(conn, buf, buf)
	case doSink:
		return sinks(conn, buf)
	case doAnswer:
		return answers(conn, make([]byte, AskBytes), buf)
	case doTake:
		return answers(conn, buf, make([]byte, AskBytes))
	case doSource:
		for {
			if _, err := conn.Write(buf); err != nil {
				return err
			}
		}
	}
	return errs.Newf(errs.Invalid, "bench peer", "", "neither echo nor sink nor source")
}

// Touched is memory with something in it: what was never written is one page of zeroes.
func Touched(size int) []byte {
	buf := make([]byte, size)
	for i := range buf {
		buf[i] = byte(i)
	}
	return buf
}

func answers(conn net.Conn, in, out []byte) error {
	for {
		if _, err := io.ReadFull(conn, in); err != nil {
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
	}
}

func sinks(conn net.Conn, buf []byte) error {
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

// socket is what TCP and unix sockets have in common.
type socket interface {
	net.Conn
	CloseWrite() error
}

// dial connects to a Serve: by a unix socket where addr is a path or an abstract name.
func dial(ctx context.Context, addr string, what, size int) (socket, error) {
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
	return conn.(socket), nil
}

// Pings measures round trips.
func Pings(addr string, size int) bench.Measure {
	return func(ctx context.Context, d time.Duration) (bench.Result, error) {
		conn, err := dial(ctx, addr, doEcho, size)
		if err != nil {
			return bench.Result{}, err
		}
		defer conn.Close()
		buf := Touched(size)
		return bench.Repeat(ctx, d, size, func() error {
			if _, err := conn.Write(buf); err != nil {
				return err
			}
			_, err := io.ReadFull(conn, buf)
			return err
		})
	}
}

// Writes streams to the peer, and counts when the peer has told that it has everything.
func Writes(addr string, size int) bench.Measure {
	return func(ctx context.Context, d time.Duration) (r bench.Result, err error) {
		conn, err := dial(ctx, addr, doSink, size)
		if err != nil {
			return r, err
		}
		defer conn.Close()
		buf := Touched(size)
		warm := int64(0)
		for warm < warmBytes {
			if _, err := conn.Write(buf); err != nil {
				return r, err
			}
			warm += int64(size)
		}
		if err := sunk(conn, warm); err != nil {
			return r, err
		}
		begin := time.Now()
		for end := begin.Add(d); ctx.Err() == nil && time.Now().Before(end); {
			if _, err := conn.Write(buf); err != nil {
				return r, err
			}
			r.Add(1, size)
		}
		if err := conn.CloseWrite(); err != nil {
			return r, err
		}
		if err := sunk(conn, warm+r.Bytes); err != nil {
			return r, err
		}
		r.Took = time.Since(begin)
		return r, ctx.Err()
	}
}

// Reads has the peer stream to this side.
func Reads(addr string, size int) bench.Measure {
	return func(ctx context.Context, d time.Duration) (r bench.Result, err error) {
		conn, err := dial(ctx, addr, doSource, size)
		if err != nil {
			return r, err
		}
		defer conn.Close()
		buf := Touched(size)
		for warm := 0; warm < warmBytes; warm += size {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return r, err
			}
		}
		for begin := time.Now(); r.Took < d && ctx.Err() == nil; r.Took = time.Since(begin) {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return r, err
			}
			r.Add(1, size)
		}
		return r, ctx.Err()
	}
}

// Trades has depth requests of out bytes under way, each written by itself, each answered with in
// bytes. The larger of the two is what moves; the smaller one is AskBytes, unless they are equal.
func Trades(addr string, out, in, depth int) bench.Measure {
	what, size := doEcho, max(out, in)
	if out < in {
		what = doAnswer
	} else if out > in {
		what = doTake
	}
	return func(ctx context.Context, d time.Duration) (r bench.Result, err error) {
		conn, err := dial(ctx, addr, what, size)
		if err != nil {
			return r, err
		}
		defer conn.Close()
		ask, replies := Touched(out), make([]byte, in*min(depth, max(1, bench.MiB/in)))
		asked, bytes := 0, 0
		for begin := time.Now(); r.Took < d && ctx.Err() == nil; r.Took = time.Since(begin) {
			for ; asked < r.Ops+depth; asked++ {
				if _, err := conn.Write(ask); err != nil {
					return r, err
				}
			}
			n, err := conn.Read(replies)
			if err != nil {
				return r, err
			}
			bytes += n
			r.Add(bytes/in, size)
			bytes %= in
		}
		return r, ctx.Err()
	}
}
