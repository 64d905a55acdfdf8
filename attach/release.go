package attach

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// releaseMax is how long the kernel may take to write what it holds for a device.
const releaseMax = 60 * time.Second

// Release makes sure that nobody uses a device: no file system is mounted from it, no other device
// stands on it. What was written to it is at the source, and durable there, when it returns.
// errs.Busy says that it is used.
func Release(node string) error {
	result := make(chan error, 1)
	go func() { result <- release(node) }()
	select {
	case err := <-result:
		return err
	case <-time.After(releaseMax):
		return errs.Newf(errs.Busy, "attach.Release", node,
			"what was written to it cannot be synced: servers do not answer")
	}
}

func release(node string) error {
	f, err := os.OpenFile(node, os.O_RDONLY|unix.O_EXCL, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return errs.Newf(errs.Busy, "attach.Release", node, "the device is in use")
	case err != nil:
		return errs.Wrap("attach.Release", node, err)
	}
	return errs.Wrap("attach.Release", node, errors.Join(f.Sync(), f.Close()))
}

// nothing is an export that fails every request.
type nothing string

// Nothing is an export of which nothing can be read or written any more, and why.
func Nothing(why string) nbd.Export { return nothing(why) }

func (n nothing) fail() error {
	return errs.Newf(errs.Shutdown, "attach", "", "%s", string(n))
}

// Size implements nbd.Export.
func (n nothing) Size() int64 { return 0 }

// ReadAt implements nbd.Export.
func (n nothing) ReadAt(context.Context, []byte, int64) error { return n.fail() }

// WriteAt implements nbd.Export.
func (n nothing) WriteAt(context.Context, []byte, int64, bool) error { return n.fail() }

// Flush implements nbd.Export.
func (n nothing) Flush(context.Context) error { return n.fail() }

// Close implements nbd.Export.
func (n nothing) Close() error { return nil }

// lookMax is how long it may take to see whether a device is in use.
const lookMax = 3 * time.Second

// InUse tells whether a device is claimed: a file system is mounted from it, or another device
// stands on it. It is for devices that no process may serve. What claims it is seen at once; but
// after that the kernel looks for partitions when a device is opened for the first time, and waits
// for blocks that nobody brings. So who has to wait is the first, and nobody has claimed it; the
// open that waits ends with the device, and until then the calling process cannot.
func InUse(s System, index int) bool {
	result := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(s.Node(index), os.O_RDONLY|unix.O_EXCL, 0)
		if err == nil {
			_ = f.Close()
		}
		result <- err
	}()
	select {
	case err := <-result:
		return errors.Is(err, unix.EBUSY)
	case <-time.After(lookMax):
		return false
	}
}
