package early

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// Waits tells whether this process has a parent that ends when it is released, and so may stay
// when its command is done.
func Waits() bool { return parent() >= 0 }

// Release ends the parent with an exit code of 0 to 255, after this process has got a session of
// its own: what the parent's terminal sends does not reach it any more. Call it once, where Waits.
func Release(code int) error {
	_, err := unix.Setsid()
	fd := parent()
	if _, e := unix.Write(fd, []byte{byte(code)}); err == nil {
		err = e
	}
	return errs.Wrap("early.Release", "", err)
}
