package bench

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/sluice-storage/sluice/msg"
)

// PingBytes is the size of the small request: what the ceiling sends each way.
const PingBytes = 8

// ServeEcho is the plain TCP peer for round trips: it sends back PingBytes at a time until the
// listener is closed.
func ServeEcho(ln net.Listener) { accept(ln, echo) }

// ServeBulk is the plain TCP peer for bandwidth: for each 8-byte length it sends that many bytes,
// always the same ones. The client asks ahead, so that the stream never stops.
func ServeBulk(ln net.Listener) {
	accept(ln, func(conn net.Conn) error { return bulk(conn, false) })
}

// ServeWalk is ServeBulk that walks through BulkRange bytes over and over, as a server's cache
// does. Its data does not stay in the processor's caches: what it reaches less than ServeBulk is
// the price of memory, not of software.
func ServeWalk(ln net.Listener) {
	accept(ln, func(conn net.Conn) error { return bulk(conn, true) })
}

func accept(ln net.Listener, serve func(net.Conn) error) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = serve(conn) // the client closes when it is through
		}()
	}
}

func echo(conn net.Conn) error {
	var b [PingBytes]byte
	for {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return err
		}
		if _, err := conn.Write(b[:]); err != nil {
			return err
		}
	}
}

// BulkRange is how much data reads walk through where they walk; no answer is larger.
const BulkRange = 64 << 20

func bulk(conn net.Conn, walk bool) error {
	var b [8]byte
	data := make([]byte, BulkRange)
	for i := 0; i < len(data); i += 512 {
		data[i] = byte(i) // memory that was never written is one page of zeroes
	}
	at := uint64(0)
	for {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return err
		}
		n := min(binary.BigEndian.Uint64(b[:]), BulkRange)
		if !walk || at+n > BulkRange {
			at = 0
		}
		if _, err := conn.Write(data[at : at+n]); err != nil {
			return err
		}
		at += n
	}
}

// PlainPing measures the round trip of PingBytes over plain TCP.
func PlainPing(addr string) Contender {
	return Contender{Provider: "plain Go TCP", Measure: func(ctx context.Context,
		d time.Duration) (float64, error) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		var b [PingBytes]byte
		return MedianLatency(ctx, d, func() error {
			if _, err := conn.Write(b[:]); err != nil {
				return err
			}
			_, err := io.ReadFull(conn, b[:])
			return err
		})
	}}
}

// PlainBulk measures a stream of answers of size bytes over plain TCP, depth of them asked ahead.
// It is the ceiling: nothing but a socket and one buffer at each end.
func PlainBulk(addr string, size int64, depth int) Contender {
	return plainStream("plain Go TCP", addr, size, depth)
}

// PlainWalk is PlainBulk from a ServeWalk.
func PlainWalk(addr string, size int64, depth int) Contender {
	return plainStream("plain Go TCP, 64 MiB", addr, size, depth)
}

func plainStream(provider, addr string, size int64, depth int) Contender {
	return Contender{Provider: provider, Depth: depth, Measure: func(ctx context.Context,
		d time.Duration) (float64, error) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		var ask [8]byte
		binary.BigEndian.PutUint64(ask[:], uint64(size))
		for range depth - 1 {
			if _, err := conn.Write(ask[:]); err != nil {
				return 0, err
			}
		}
		data := make([]byte, size)
		return Throughput(ctx, d, 1, size, func(int, int) error {
			if _, err := conn.Write(ask[:]); err != nil {
				return err
			}
			_, err := io.ReadFull(conn, data)
			return err
		})
	}}
}

// EchoHandler answers every request with its own body: the peer of MsgPing.
func EchoHandler() msg.Handler {
	return msg.HandlerFunc(func(_ context.Context, c *msg.Call) {
		_ = c.Reply(c.Body(), 0) // a client that is gone does not care
	})
}

// MsgPing measures a request with an 8-byte body and its answer.
func MsgPing(provider string, conn *msg.Conn) Contender {
	return Contender{Provider: provider, Measure: func(ctx context.Context,
		d time.Duration) (float64, error) {
		req := msg.Request{Op: 1, Body: make([]byte, PingBytes)}
		var rep msg.Reply
		return MedianLatency(ctx, d, func() error { return conn.Call(ctx, &req, &rep) })
	}}
}
