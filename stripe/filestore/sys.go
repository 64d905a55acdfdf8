package filestore

import (
	"errors"
	"os"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// iovMax is how many buffers the kernel takes in one call.
const iovMax = 1024

// again repeats a system call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// advance drops n bytes, and empty buffers, from the front. It changes no buffer list in
// place: the list is the caller's.
func advance(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n == 0 {
		return bufs
	}
	rest := make([][]byte, len(bufs))
	copy(rest, bufs)
	rest[0] = rest[0][n:]
	return rest
}

// preadFull fills the buffers from off on, with zeroes behind the end of the file.
func preadFull(fd int, bufs [][]byte, off int64) error {
	bufs = advance(bufs, 0)
	for len(bufs) > 0 {
		n, err := unix.Preadv(fd, bufs[:min(len(bufs), iovMax)], off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			for _, b := range bufs {
				clear(b)
			}
			return nil
		}
		off += int64(n)
		bufs = advance(bufs, n)
	}
	return nil
}

// pwriteFull writes all buffers at off.
func pwriteFull(fd int, bufs [][]byte, off int64) error {
	bufs = advance(bufs, 0)
	for len(bufs) > 0 {
		n, err := unix.Pwritev(fd, bufs[:min(len(bufs), iovMax)], off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.EIO // a disk that takes nothing and says nothing
		}
		off += int64(n)
		bufs = advance(bufs, n)
	}
	return nil
}

// roomError tells errors that leave the file as it was or partly written, in a known state: the
// store goes on.
func roomError(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) ||
		errors.Is(err, unix.EFBIG)
}

// changed sorts the outcome of a change to a file: no room is the caller's problem,
// everything else stops the store.
func (s *Store) changed(call, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case roomError(err):
		return errs.New(errs.KindOf(err), "filestore."+call, path, err)
	}
	return s.fail(call, path, err)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func syncFileSystem(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return again(func() error { return unix.Syncfs(int(d.Fd())) })
}
