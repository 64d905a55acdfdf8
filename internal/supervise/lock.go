package supervise

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// Lock is held by the one supervisor of a folder. The kernel lets go of it when the process ends,
// so that a lock is never left behind; children do not inherit it.
type Lock struct{ file *os.File }

// whole is a lock on the whole file.
func whole() *unix.Flock_t { return &unix.Flock_t{Type: unix.F_WRLCK} }

// Acquire takes the lock on a file, which is made if it is not there: errs.Busy if another has it.
func Acquire(name string) (*Lock, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, errs.Wrap("supervise.Acquire", name, err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, whole())
	if err == nil {
		return &Lock{f}, nil
	}
	f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, errs.New(errs.Busy, "supervise.Acquire", name, nil)
	}
	return nil, errs.Wrap("supervise.Acquire", name, err)
}

// Release gives the lock back.
func (l *Lock) Release() error { return l.file.Close() }

// Held tells whether somebody has the lock, without taking it for a moment as a try would. A file
// that does not exist is held by nobody.
func Held(name string) (bool, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, errs.Wrap("supervise.Held", name, err)
	}
	defer f.Close()
	lock := whole()
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, lock); err != nil {
		return false, errs.Wrap("supervise.Held", name, err)
	}
	return lock.Type != unix.F_UNLCK, nil
}
