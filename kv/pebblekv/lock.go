package pebblekv

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

const lockName = "LOCK" // pebble's name for it

// lock takes the directory before pebble looks at it, to be able to say who has it.
func (s *Store) lock() error {
	if err := s.opt.FS.MkdirAll(s.opt.Dir, 0o700); err != nil {
		return errs.Wrap(opOpen, s.opt.Dir, err)
	}
	name := s.opt.FS.PathJoin(s.opt.Dir, lockName)
	err := s.guard.lock(name)
	if err == nil {
		return nil
	}
	var no unix.Errno
	if errors.As(err, &no) && no != unix.EAGAIN {
		return errs.Wrap(opOpen, s.opt.Dir, err) // not a matter of who holds it
	}
	// Without an errno this very process holds the lock. Then the file must not be touched:
	// closing it, even a second descriptor of it, would release the lock.
	who := "this process"
	if no == unix.EAGAIN {
		who = holder(name)
	}
	return errs.Newf(errs.Busy, opOpen, s.opt.Dir,
		"the store is in use by %s; stop that first, or choose another directory: %w", who, err)
}

// holder names the process that holds the lock, as far as the kernel knows.
func holder(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return "another process"
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil || l.Type == unix.F_UNLCK {
		return "another process"
	}
	return fmt.Sprintf("process %d", l.Pid)
}
