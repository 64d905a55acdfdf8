package nbd

import (
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A goroutine that waits for a socket is parked, and costs a round through the poller to wake up:
// cheap for thousands of idle connections, slow for one whose client answers within microseconds.
// So a connection that is quick waits inside of a system call for a moment first. That holds a
// thread, so only a few do it at the same time.
const (
	briskWait = time.Millisecond
	briskMost = 8 // threads that wait so, of all connections

	// promptTime is what asking takes if the bytes are there already.
	promptTime = 2 * time.Microsecond
)

// socket reads a connection that is a plain socket.
type socket struct {
	raw   syscall.RawConn
	brisk *atomic.Int32 // how many wait inside of a system call
	try   func(fd uintptr) bool

	quick bool // the last bytes came within briskWait
	early bool // there were none at first: the next read waits before it tries
	into  []byte
	n     int
	err   error
	since time.Time // when it began to wait; zero: it did not
}

func newSocket(raw syscall.RawConn, brisk *atomic.Int32) *socket {
	s := &socket{raw: raw, brisk: brisk}
	s.try = s.attempt
	return s
}

// Read is that of the connection.
func (s *socket) Read(p []byte) (int, error) {
	s.into, s.since = p, time.Time{}
	err := s.raw.Read(s.try)
	s.into = nil
	if !s.since.IsZero() {
		s.quick = time.Since(s.since) < briskWait
	}
	switch {
	case err != nil:
		return 0, err
	case s.err != nil:
		return 0, s.err
	case s.n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// attempt reads once; false: there is nothing yet, and the goroutine is to be parked.
func (s *socket) attempt(fd uintptr) bool {
	waited := false
	if s.quick && s.early && s.since.IsZero() { // one system call instead of two, most of the time
		s.since, waited = time.Now(), true
		s.await(fd)
		s.early = time.Since(s.since) > promptTime
	}
	for {
		s.n, s.err = syscall.Read(int(fd), s.into)
		switch s.err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
		default:
			s.n = max(s.n, 0)
			return true
		}
		if s.since.IsZero() {
			s.since, s.early = time.Now(), true
		}
		if waited || !s.quick || !s.await(fd) {
			return false
		}
		waited = true
	}
}

// await waits for bytes inside of a system call, if not too many do so; false: there are none.
func (s *socket) await(fd uintptr) bool {
	defer s.brisk.Add(-1)
	if s.brisk.Add(1) > briskMost {
		return false
	}
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], int(briskWait/time.Millisecond))
	return err == nil && n > 0
}
