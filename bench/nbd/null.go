package nbd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// The null server answers reads out of one buffer and forgets what is written: what is left is the
// client, the socket and the least that a server must do. It speaks as much of the protocol as
// fio's client needs, shares no code with ours, and is a process of its own.
//
// A connection is one thread that blocks in the kernel: reads what there is, answers all of it with
// one gather write.

const (
	nullMax   = 32 << 20  // the longest request
	nullInput = 256 << 10 // read at a time

	nullScratch = 1 << 20 // of a payload, at a time

	// The kernel takes 1024 pieces at most, two for each answer.
	nullBatch = 256

	nullMagic  = 0x4e42444d41474943
	nullOption = 0x49484156454F5054
	nullReply  = 0x0003e889045565a9

	nullRequestMagic = 0x25609513
	nullSimpleMagic  = 0x67446698
	nullRequestBytes = 28
	nullAnswerBytes  = 16

	nullFlags = 1 | 1<<2 | 1<<3 | 1<<8 // flags, FLUSH, FUA, several connections
)

// startNull starts it by the verb of this program.
func startNull(self string) Starter {
	return Starter{Name: Null, Kind: Ceiling, Start: func(ctx context.Context, at Place) (*Server,
		error) {
		return StartOn(ctx, at, self, AideCommand, aideNull, socketIn(at), fmt.Sprint(at.Bytes))
	}}
}

// serveNull serves until the context ends.
func serveNull(ctx context.Context, path string, size int64) error {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	data := make([]byte, nullMax)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			if nullHandshake(conn, size) == nil {
				_ = nullServe(conn.(*net.UnixConn), data) // the client has ended it
			}
		}()
	}
}

// nullHandshake lets the client choose whatever it likes: it is the same device.
func nullHandshake(conn io.ReadWriter, size int64) error {
	hello := binary.BigEndian.AppendUint64(nil, nullMagic)
	hello = binary.BigEndian.AppendUint64(hello, nullOption)
	if _, err := conn.Write(binary.BigEndian.AppendUint16(hello, 3)); err != nil {
		return err
	}
	var h [16]byte
	if _, err := io.ReadFull(conn, h[:4]); err != nil {
		return err
	}
	for {
		if _, err := io.ReadFull(conn, h[:]); err != nil {
			return err
		}
		option, n := binary.BigEndian.Uint32(h[8:]), binary.BigEndian.Uint32(h[12:])
		if binary.BigEndian.Uint64(h[:]) != nullOption || n > 64<<10 {
			return errs.Newf(errs.Protocol, "null server", "", "option %x", h)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(n)); err != nil {
			return err
		}
		out, chosen := nullAnswer(option, size)
		if _, err := conn.Write(out); err != nil || chosen {
			return err
		}
	}
}

// nullAnswer is what is said to an option, and whether the device is chosen by it.
func nullAnswer(option uint32, size int64) (out []byte, chosen bool) {
	reply := func(kind uint32, data []byte) {
		out = binary.BigEndian.AppendUint64(out, nullReply)
		out = binary.BigEndian.AppendUint32(out, option)
		out = binary.BigEndian.AppendUint32(out, kind)
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(data))), data...)
	}
	const (
		optGo, optInfo  = 7, 6
		repAck, repInfo = 1, 3
		repUnsupported  = 1<<31 + 1
	)
	if option != optGo && option != optInfo {
		reply(repUnsupported, nil)
		return out, false
	}
	info := binary.BigEndian.AppendUint64([]byte{0, 0}, uint64(size))
	reply(repInfo, binary.BigEndian.AppendUint16(info, nullFlags))
	reply(repAck, nil)
	return out, option == optGo
}

// nullConn is a connection in transmission.
type nullConn struct {
	fd      int
	data    []byte
	scratch []byte // where payloads go
	in      []byte
	from    int // what of in was not looked at
	to      int
	pieces  [][]byte
	answers [nullBatch][nullAnswerBytes]byte
	used    int
}

func nullServe(conn *net.UnixConn, data []byte) error {
	_ = conn.SetWriteBuffer(2 << 20) // as large as the kernel allows
	_ = conn.SetReadBuffer(2 << 20)
	f, err := conn.File() // blocks
	if err != nil {
		return err
	}
	defer f.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := &nullConn{fd: int(f.Fd()), data: data, in: make([]byte, nullInput),
		scratch: make([]byte, nullScratch)}
	for {
		if c.to-c.from < nullRequestBytes || c.used == nullBatch {
			if err := c.send(); err != nil {
				return err
			}
			if err := c.fillTo(nullRequestBytes); err != nil {
				return err
			}
		}
		if err := c.request(c.in[c.from : c.from+nullRequestBytes]); err != nil {
			return err
		}
	}
}

// request notes the answer to one request, whose payload is dropped.
func (c *nullConn) request(h []byte) error {
	const read, write, disconnect = 0, 1, 2
	command, length := binary.BigEndian.Uint16(h[6:]), binary.BigEndian.Uint32(h[24:])
	if binary.BigEndian.Uint32(h) != nullRequestMagic || length > nullMax {
		return errs.Newf(errs.Protocol, "null server", "", "request %x", h)
	}
	if command == disconnect {
		return io.EOF
	}
	answer := c.answers[c.used][:]
	c.used++
	binary.BigEndian.PutUint32(answer, nullSimpleMagic)
	copy(answer[8:], h[8:16])
	c.from += nullRequestBytes
	c.pieces = append(c.pieces, answer)
	switch command {
	case read:
		c.pieces = append(c.pieces, c.data[:length])
	case write:
		return c.drop(int(length))
	}
	return nil
}

// drop takes a payload off the stream: what comes is read over what came before.
func (c *nullConn) drop(n int) error {
	have := min(n, c.to-c.from)
	c.from += have
	if n -= have; n > 0 {
		c.from, c.to = 0, 0
	}
	for n > 0 {
		part := c.scratch[:min(n, len(c.scratch))]
		k, err := again(func() (int, error) { return unix.Read(c.fd, part) })
		if err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// fillTo reads until at least n bytes are there.
func (c *nullConn) fillTo(n int) error {
	c.to = copy(c.in, c.in[c.from:c.to])
	c.from = 0
	for c.to < n {
		k, err := again(func() (int, error) { return unix.Read(c.fd, c.in[c.to:]) })
		if err != nil {
			return err
		}
		c.to += k
	}
	return nil
}

// send sends all answers.
func (c *nullConn) send() error {
	pieces := c.pieces
	for len(pieces) > 0 {
		n, err := again(func() (int, error) { return unix.Writev(c.fd, pieces) })
		if err != nil {
			return err
		}
		for len(pieces) > 0 && n >= len(pieces[0]) {
			n -= len(pieces[0])
			pieces = pieces[1:]
		}
		if n > 0 {
			pieces[0] = pieces[0][n:]
		}
	}
	c.pieces, c.used = c.pieces[:0], 0
	return nil
}

// again repeats a system call that a signal has interrupted; the end of a stream is io.EOF.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && n == 0:
			return 0, io.EOF
		default:
			return n, err
		}
	}
}
