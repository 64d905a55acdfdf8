package diskexport

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// each calls fn for every run of the range that a member holds together.
func (d *disk) each(off, length int64, fn func(p *part, at, off, n int64) error) error {
	for end := off + length; off < end; {
		member, at, run := d.place(off)
		run = min(run, end-off)
		if err := fn(d.parts[member], at, off, run); err != nil {
			return err
		}
		off += run
	}
	return nil
}

// pread reads through the page cache. A file that has shrunk since it was opened is an error, not
// zeroes.
func (d *disk) pread(b []byte, off int64) error {
	base := off
	return d.each(off, int64(len(b)), func(p *part, at, off, n int64) error {
		for q := b[off-base:][:n]; len(q) > 0; {
			k, err := unix.Pread(int(p.file.Fd()), q, at)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err == nil && k == 0 {
				err = errs.Newf(errs.IO, "", "", "it ends at %d: it has shrunk", at)
			}
			if err != nil {
				return &nbd.OffsetError{Off: off, Err: errs.Wrap("diskexport.Read", p.path, err)}
			}
			q, at, off = q[k:], at+int64(k), off+int64(k)
		}
		return nil
	})
}

// preadNow reads what is in the page cache without waiting for the device.
func (d *disk) preadNow(b []byte, off int64) bool {
	base := off
	return nil == d.each(off, int64(len(b)), func(p *part, at, off, n int64) error {
		if p.noNowait.Load() {
			return unix.EAGAIN
		}
		k, err := preadv2(int(p.file.Fd()), b[off-base:][:n], at, unix.RWF_NOWAIT)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
			p.noNowait.Store(true)
		}
		if err == nil && int64(k) < n {
			err = unix.EAGAIN
		}
		return err
	})
}

func preadv2(fd int, b []byte, at int64, flags int) (int, error) {
	return unix.Preadv2(fd, [][]byte{b}, at, flags)
}

// pwrite writes through the page cache.
func (d *disk) pwrite(b []byte, off int64) error {
	base := off
	return d.each(off, int64(len(b)), func(p *part, at, off, n int64) error {
		for q := b[off-base:][:n]; len(q) > 0; {
			k, err := unix.Pwrite(int(p.file.Fd()), q, at)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err == nil && k == 0 {
				err = io.ErrShortWrite
			}
			if err != nil {
				return err
			}
			q, at = q[k:], at+int64(k)
		}
		return nil
	})
}

// writePaged writes through the page cache, beside no direct write of the same pages.
func (d *disk) writePaged(b []byte, off int64, stable bool) error {
	if d.needsRanges() {
		var h heldRange
		d.ranges.lock(&h, off, int64(len(b)), paged)
		defer d.ranges.unlock(&h)
	}
	if stable {
		return d.pwriteStable(b, off)
	}
	return errs.Wrap("diskexport.Write", d.name, d.pwrite(b, off))
}

// needsRanges tells whether somebody may write past the page cache.
func (d *disk) needsRanges() bool { return d.parts[0].dev != nil }

// pwriteStable writes and syncs only this range where the kernel can, the whole file otherwise.
func (d *disk) pwriteStable(b []byte, off int64) error {
	if err := d.failure(); err != nil {
		return err
	}
	if !d.noSync.Load() {
		cause := d.pwriteSync(b, off)
		switch {
		case cause == nil:
			return d.failure()
		case errors.Is(cause, unix.EOPNOTSUPP) || errors.Is(cause, unix.ENOSYS):
			d.noSync.Store(true)
		default:
			// If writing fails too, the write did (a full disk, say) and the client knows; else the sync
			// did, which may have lost earlier writes as well.
			if err := d.pwrite(b, off); err != nil {
				return errs.Wrap("diskexport.Write", d.name, err)
			}
			return d.breakDown(cause)
		}
	}
	if err := d.pwrite(b, off); err != nil {
		return errs.Wrap("diskexport.Write", d.name, err)
	}
	return d.sync()
}

// pwriteSync is pwrite that makes the range stable.
func (d *disk) pwriteSync(b []byte, off int64) error {
	base := off
	return d.each(off, int64(len(b)), func(p *part, at, off, n int64) error {
		for q := b[off-base:][:n]; len(q) > 0; {
			k, err := unix.Pwritev2(int(p.file.Fd()), [][]byte{q}, at, unix.RWF_DSYNC)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err == nil && k == 0 {
				err = io.ErrShortWrite
			}
			if err != nil {
				return err
			}
			q, at = q[k:], at+int64(k)
		}
		return nil
	})
}
