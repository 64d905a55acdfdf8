package diskexport

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// The kernel reports a failed write-back once, to whichever sync comes next, and marks the pages
// clean: the data is gone, and the sync after that one succeeds. A client must not be told that
// its data is safe by that second one. So the first failure is kept, and every later flush and
// FUA of any export of the disk fails with it until the disk is opened again. Writes that our own
// cache could not write back are treated alike.

// flush makes every write that has returned durable, whoever made it, in whatever mode.
func (d *disk) flush(ctx context.Context) error {
	if !d.caching.Load() {
		return d.sync()
	}
	if err := d.failure(); err != nil {
		return err
	}
	if err := d.cache().Sync(ctx, d.id); err != nil {
		return err
	}
	return d.failure()
}

// sync makes durable what the members have.
func (d *disk) sync() error {
	if err := d.failure(); err != nil {
		return err
	}
	if err := d.syncParts(); err != nil {
		return d.breakDown(err)
	}
	// A sync that ran beside this one may have been the one that was told.
	return d.failure()
}

func (d *disk) syncParts() error {
	if len(d.parts) == 1 {
		return syncPart(d.parts[0])
	}
	failed := make([]error, len(d.parts))
	var all sync.WaitGroup
	for i, p := range d.parts {
		all.Go(func() { failed[i] = syncPart(p) })
	}
	all.Wait()
	return errors.Join(failed...)
}

func syncPart(p *part) error {
	return retry(func() error { return unix.Fdatasync(int(p.file.Fd())) })
}

func (d *disk) failure() error {
	if p := d.broken.Load(); p != nil {
		return *p
	}
	return nil
}

// breakDown keeps the first failure and returns it.
func (d *disk) breakDown(cause error) error {
	err := errs.Wrap("diskexport.Sync", d.name, cause)
	d.broken.CompareAndSwap(nil, &err)
	return d.failure()
}
