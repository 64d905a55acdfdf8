package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a TCP connection behind its hellos, by a descriptor that package os waits for: its error
// for a reader who was interrupted is always the same one, while package net makes one for each.
type conn struct {
	*os.File
	local, remote net.Addr
}

// take makes the connection c a conn; c is closed.
func take(c *net.TCPConn) (*conn, error) {
	f, err := c.File()
	if err != nil {
		return nil, err
	}
	k := &conn{File: f, local: c.LocalAddr(), remote: c.RemoteAddr()}
	if err := errors.Join(f.SetDeadline(time.Time{}), c.Close()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return k, nil
}

// CloseWrite tells the peer that nothing more will come.
func (c *conn) CloseWrite() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.Shutdown(int(fd), unix.SHUT_WR) })
	return errors.Join(err, failed)
}

// sock is one TCP connection of an endpoint.
type sock struct {
	conn *conn
	raw  syscall.RawConn
	rec  records // how bytes are protected on their way; nil: they are not
}

// records protect the bytes of a socket. Who reads and who writes may be two goroutines.
type records interface {
	// read is stream.read: it fills what it can of s.in, with bytes that were verified. Where the
	// stream does not block it may be 0.
	read(s *stream) (int, error)

	// pending tells whether read has something without asking the socket, as far as that is known.
	pending() bool

	// seal takes the next bytes of b.out and makes b.wire what the socket shall be given for them.
	seal(b *batch) error
}

// Reading. Headers, small payloads and the first bytes of large ones come through the carry buffer;
// the rest of a payload is read by readv straight into its target, with a piece of the carry buffer
// behind it, so that the next header comes for free.

const (
	carryBytes = 8192     // a header and a message of a page fit
	tailBytes  = 512      // of the carry buffer, behind a large payload
	largeBytes = 16 << 10 // behind so much, what follows is large too and should not be carried
	bulkBytes  = 64 << 10 // so much that the cores have no time to poll
)

// stream is the reading side of a socket. It belongs to who reads.
type stream struct {
	*sock
	before func()       // called before every read that may block
	bulk   *atomic.Bool // of the endpoint: something large was moved

	carry  [carryBytes]byte
	at, to int  // carry[at:to] was read and not used yet
	need   int  // how many bytes the next frame has, as far as that is known
	large  bool // so was the last payload
	full   bool // the last fill brought as much as it asked for
	in     vec
	one    [1][]byte // a target of one piece

	src   *vec // what readOnce fills: in, or a place of the records
	call  func(fd uintptr) bool
	block bool // wait until there is something
	n     int
	errno syscall.Errno
}

func (s *stream) open(k *sock, e *endpoint, before func()) {
	s.sock, s.before, s.bulk, s.block = k, before, &e.bulk, true
	s.call = s.readOnce
}

// readOnce is called with the socket: false waits until there is something to read.
func (s *stream) readOnce(fd uintptr) bool {
	s.n, s.errno = s.src.readv(fd)
	return s.errno != syscall.EAGAIN || !s.block
}

// receive reads from the socket into v, blocking until there is something unless block is off: then
// it may return 0.
func (s *stream) receive(v *vec) (int, error) {
	if s.block {
		s.before()
	}
	s.src = v
	err := s.raw.Read(s.call)
	switch {
	case err != nil:
		return 0, err
	case s.errno == syscall.EAGAIN:
		return 0, nil
	case s.errno != 0:
		return 0, s.errno
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// read reads into what is in s.in, blocking until there is something.
func (s *stream) read() (n int, err error) {
	if s.rec == nil {
		return s.receive(&s.in)
	}
	if gone := guarded(func() { n, err = s.rec.read(s) }); gone {
		return 0, errors.New("a record was meant for memory that is not there any more")
	}
	return n, err
}

// rest tells whether there is more than the last fill could take.
func (s *stream) rest() bool { return s.full || s.rec != nil && s.rec.pending() }

// fill reads more into the carry buffer. Without block it may read nothing.
func (s *stream) fill(block bool) error {
	s.to = copy(s.carry[:], s.carry[s.at:s.to])
	s.at = 0
	s.in.reset()
	end := carryBytes
	if s.large {
		end = min(max(s.to+tailBytes, s.need), carryBytes)
	}
	s.in.add(s.carry[s.to:end])
	s.block = block
	n, err := s.read()
	s.block = true
	if err == nil {
		s.to += n
	}
	s.full = s.to == end
	return err
}

// errGone says that pieces are no memory any more: a program has unmapped what it reads into. The
// bytes that were for them are dropped, and the stream goes on.
var errGone = errors.New("the memory that was granted is not there any more")

// guarded runs what touches memory of a program, and tells whether that was gone. The kernel says
// so by an error, a copy by a fault, which must not end the process.
func guarded(touch func()) (gone bool) {
	defer func(old bool) {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			if _, gone = r.(interface{ Addr() uintptr }); !gone {
				panic(r) // a bug
			}
		}
	}(debug.SetPanicOnFault(true))
	touch()
	return false
}

// take moves what the carry buffer has into the pieces, and makes the rest of them the target of
// the next reads. It returns how many bytes of them it has not filled.
func (s *stream) take(bufs [][]byte) (left int, gone bool) {
	for _, b := range bufs {
		left += len(b)
	}
	gone = guarded(func() {
		for _, b := range bufs {
			n := copy(b, s.carry[s.at:s.to])
			s.at += n
			left -= n
			s.in.add(b[n:])
		}
	})
	return left, gone
}

// gone drops bytes that have no place.
func (s *stream) gone(n int) error {
	s.in.reset()
	if err := s.skip(n); err != nil {
		return err
	}
	return errGone
}

// place reads the next bytes of the stream into the pieces, until they are full, or drops them with
// errGone.
func (s *stream) place(bufs [][]byte) error {
	s.in.reset()
	if left, gone := s.take(bufs); gone {
		return s.gone(left)
	}
	want := s.in.bytes
	s.large = want >= largeBytes
	if want == 0 {
		return nil
	}
	tail := carryBytes // it is empty now
	if s.large {
		tail = tailBytes
	}
	if want >= bulkBytes {
		s.bulk.Store(true)
	}
	s.at, s.to = 0, 0
	s.in.add(s.carry[:tail])
	for {
		n, err := s.read()
		if err == syscall.EFAULT {
			return s.gone(want)
		}
		if err != nil {
			s.in.reset()
			return err
		}
		if n >= want {
			s.to = n - want
			s.in.reset()
			return nil
		}
		want -= n
		s.in.drop(n)
	}
}

// placeOne is place for a single piece.
func (s *stream) placeOne(b []byte) error {
	s.one[0] = b
	err := s.place(s.one[:])
	s.one[0] = nil
	return err
}

// skip drops the next n bytes of the stream.
func (s *stream) skip(n int) error {
	for {
		have := min(n, s.to-s.at)
		s.at += have
		n -= have
		if n == 0 {
			return nil
		}
		s.at, s.to = 0, 0
		s.in.reset()
		s.in.add(s.carry[:])
		got, err := s.read()
		if err != nil {
			return err
		}
		s.to = got
	}
}
