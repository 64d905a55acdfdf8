package fileexport

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// The kernel reports a failed write-back once, to whichever sync comes next, and marks the pages
// clean: the data is gone, and the sync after that one succeeds. A client must not be told that
// its data is safe by that second one. So the first failure is kept, and every later flush and
// FUA fails with it until the export is opened again.

// Flush makes every write that has returned durable, whoever made it.
func (e *File) Flush(context.Context) error {
	if e.readOnly {
		return nil
	}
	return e.sync()
}

func (e *File) sync() error {
	if err := e.failure(); err != nil {
		return err
	}
	if err := retry(func() error { return unix.Fdatasync(e.fd) }); err != nil {
		return e.breakDown(err)
	}
	// A sync that ran beside this one may have been the one that was told.
	return e.failure()
}

func (e *File) failure() error {
	if p := e.broken.Load(); p != nil {
		return *p
	}
	return nil
}

// breakDown keeps the first failure and returns it.
func (e *File) breakDown(cause error) error {
	err := errs.Wrap("fileexport.Sync", e.path, cause)
	e.broken.CompareAndSwap(nil, &err)
	return e.failure()
}

// writeDurable writes and syncs only this range where the kernel can, the whole file otherwise.
func (e *File) writeDurable(p []byte, off int64) error {
	if err := e.failure(); err != nil {
		return err
	}
	for len(p) > 0 && !e.noDsync.Load() {
		n, err := unix.Pwritev2(e.fd, [][]byte{p}, off, unix.RWF_DSYNC)
		switch {
		case err == nil && n > 0:
			p, off = p[n:], off+int64(n)
		case err == unix.EINTR:
		case err == unix.EOPNOTSUPP || err == unix.ENOSYS:
			e.noDsync.Store(true)
		default:
			return e.tellApart(p, off, err)
		}
	}
	if len(p) == 0 {
		return e.failure()
	}
	if err := e.write(p, off); err != nil {
		return errs.Wrap("fileexport.Write", e.path, err)
	}
	return e.sync()
}

// tellApart finds out which half of a durable write failed by writing again: if that fails too, the
// write did (a full disk, say) and the client knows; else the sync did, which may have lost earlier
// writes as well.
func (e *File) tellApart(p []byte, off int64, cause error) error {
	if err := e.write(p, off); err != nil {
		return errs.Wrap("fileexport.Write", e.path, err)
	}
	if cause == nil {
		return e.sync() // nothing was written and nothing was said: take the long way
	}
	return e.breakDown(cause)
}
