package nbd

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// sendFile sends what is staged and then n bytes of a file, by the kernel, which has them in its
// page cache, without a copy. It returns how many bytes of the file have left; err is the file's.
// When the peer is gone there is nobody to be told, and all of them have.
func (r *replier) sendFile(f *os.File, at, n int64) (sent int64, err error) {
	if r.raw == nil {
		return r.copyFile(f, at, n)
	}
	r.sendStaged()
	if r.failed.Load() {
		return n, nil
	}
	r.waiting.Store(r.c.srv.clock.Load() + 1)
	var failed error
	gone := r.raw.Write(func(fd uintptr) bool {
		for sent < n {
			off := at + sent
			k, e := unix.Sendfile(int(fd), int(f.Fd()), &off, int(min(n-sent, writeMax)))
			switch {
			case k > 0:
				sent += int64(k)
				r.waiting.Store(r.c.srv.clock.Load() + 1)
			case e == unix.EAGAIN:
				return false
			case e == unix.EINTR:
			case e == nil:
				failed = errs.Newf(errs.IO, "sendfile", f.Name(), "ends at %d", off)
				return true
			default:
				failed = e
				return true
			}
		}
		return true
	})
	r.waiting.Store(0)
	if gone == nil && failed != nil && peerGone(failed) {
		gone = failed
	}
	if gone != nil {
		r.fail()
		return n, nil
	}
	if failed != nil && sent == 0 && errors.Is(failed, unix.EINVAL) {
		return r.copyFile(f, at, n) // a file or a socket that cannot
	}
	return sent, failed
}

// peerGone tells errors of a socket from those of a file.
func peerGone(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) ||
		errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ETIMEDOUT) ||
		errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}

// sendStaged sends the present write and lets the kernel hold back its last packet, since more
// follows at once.
func (r *replier) sendStaged() {
	iov := r.iov
	r.waiting.Store(r.c.srv.clock.Load() + 1)
	var failed error
	gone := error(nil)
	if r.bytes > 0 && !r.failed.Load() {
		gone = r.raw.Write(func(fd uintptr) bool {
			for len(iov) > 0 {
				n, e := unix.SendmsgBuffers(int(fd), iov, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
				switch {
				case e == unix.EAGAIN:
					return false
				case e == unix.EINTR:
					continue
				case e != nil:
					failed = e
					return true
				}
				iov = consume(iov, n)
			}
			return true
		})
	}
	r.waiting.Store(0)
	if gone != nil || failed != nil {
		r.fail()
	}
	r.clearWrite()
}

// consume drops the first n bytes of a list.
func consume(iov [][]byte, n int) [][]byte {
	for len(iov) > 0 && n >= len(iov[0]) {
		n -= len(iov[0])
		iov = iov[1:]
	}
	if n > 0 {
		iov[0] = iov[0][n:]
	}
	return iov
}

// copyFile is sendFile where the kernel cannot: through TLS, say.
func (r *replier) copyFile(f *os.File, at, n int64) (sent int64, err error) {
	buf := r.c.srv.buffers.get(int(min(n, zeroPieceBytes)))
	defer r.c.srv.buffers.put(buf)
	for sent < n && !r.failed.Load() {
		k, err := f.ReadAt(buf[:min(n-sent, int64(len(buf)))], at+sent)
		if k > 0 {
			r.data(buf[:k])
			r.writeOut() // the buffer is used again
			sent += int64(k)
			continue
		}
		if err == io.EOF {
			err = errs.Newf(errs.IO, "read", f.Name(), "ends at %d", at+sent)
		}
		return sent, err
	}
	return n, nil
}

// rawOf is the socket itself, where the connection is one.
func rawOf(nc any) syscall.RawConn {
	s, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
