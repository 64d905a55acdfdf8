package nbd

import (
	"io"
	"net"
	"sync/atomic"
)

// streamBytes is the read-ahead of a connection: some hundred request headers, or a few small
// writes, with one system call.
const streamBytes = 32 << 10

// stream reads a connection: headers and small payloads through a buffer, large payloads straight
// into the memory that they are meant for. Only the connection's reading goroutine uses it.
type stream struct {
	link io.Reader
	buf  []byte
	r, w int // buf[r:w] is read but not used

	// exact: a large payload came last, and most likely another follows the next header. What would
	// be read ahead of it would have to be copied.
	exact bool

	// waiting is not zero while a payload is on its way: the clock's value at its last byte.
	waiting atomic.Int64
	clock   *atomic.Int64
}

func (s *stream) buffered() int { return s.w - s.r }

// next returns the next n bytes, n <= len(buf), valid until the next call.
func (s *stream) next(n int) ([]byte, error) {
	if err := s.fill(n); err != nil {
		return nil, err
	}
	p := s.buf[s.r : s.r+n]
	s.r += n
	return p, nil
}

// fill makes at least n bytes available in the buffer. An end of the stream before the first of
// them is io.EOF, one after it io.ErrUnexpectedEOF.
func (s *stream) fill(n int) error {
	if s.w-s.r >= n {
		return nil
	}
	if s.r == s.w {
		s.r, s.w = 0, 0
	} else if s.r > len(s.buf)/2 || s.r+n > len(s.buf) {
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	}
	to := len(s.buf)
	if s.exact {
		to, s.exact = s.r+n, false
	}
	for s.w-s.r < n {
		got, err := s.link.Read(s.buf[s.w:to])
		s.w += got
		if err != nil && s.w-s.r < n {
			if err == io.EOF && s.w > s.r {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// payload fills p. What is small is read through the buffer, together with whatever follows it;
// what is large is copied only as far as it was read ahead already.
func (s *stream) payload(p []byte) error {
	if len(p) <= s.buffered() {
		s.r += copy(p, s.buf[s.r:s.w])
		return nil
	}
	defer s.waiting.Store(0)
	if len(p) <= len(s.buf)/4 {
		s.waiting.Store(s.stamp())
		q, err := s.next(len(p))
		copy(p, q)
		return noEOF(err)
	}
	n := copy(p, s.buf[s.r:s.w])
	s.r += n
	s.exact = true
	for n < len(p) {
		s.waiting.Store(s.stamp())
		got, err := s.link.Read(p[n:])
		n += got
		if err != nil && n < len(p) {
			return noEOF(err)
		}
	}
	return nil
}

// restart goes on with another link. Nothing may be left of what was read from the old one.
func (s *stream) restart(link net.Conn) {
	s.link = link
	s.r, s.w = 0, 0
}

// stamp is the clock's value, never zero, which means that nobody waits.
func (s *stream) stamp() int64 { return s.clock.Load() + 1 }

// discard skips n bytes.
func (s *stream) discard(n int64) error {
	for n > 0 {
		if s.buffered() == 0 {
			if err := s.fill(1); err != nil {
				return noEOF(err)
			}
		}
		k := min(int64(s.buffered()), n)
		s.r += int(k)
		n -= k
	}
	return nil
}

// noEOF is for places where an end of the stream is not expected.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
