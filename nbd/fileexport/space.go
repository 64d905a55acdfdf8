package fileexport

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// Trim punches a hole. Where that is not possible it is Unsupported, which for a hint is fine.
func (e *File) Trim(_ context.Context, off, length int64, fua bool) error {
	if e.readOnly {
		return errs.New(errs.ReadOnly, "fileexport.Trim", e.path, nil)
	}
	err := e.fallocate("fileexport.Trim", unix.FALLOC_FL_PUNCH_HOLE, off, length)
	if err != nil || !fua {
		return err
	}
	return e.sync()
}

// WriteZeroes punches a hole, or zeroes the range in place where it must stay allocated or holes
// are not possible. Both take no time that depends on the length, so Fast is always honoured;
// where the file system has neither, it is Unsupported and the server writes zeroes.
func (e *File) WriteZeroes(_ context.Context, off, length int64, flags nbd.ZeroFlags) error {
	const op = "fileexport.WriteZeroes"
	if e.readOnly {
		return errs.New(errs.ReadOnly, op, e.path, nil)
	}
	err := error(errs.Unsupported)
	if !flags.NoHole {
		err = e.fallocate(op, unix.FALLOC_FL_PUNCH_HOLE, off, length)
	}
	if errs.KindOf(err) == errs.Unsupported {
		err = e.fallocate(op, unix.FALLOC_FL_ZERO_RANGE, off, length)
	}
	if err != nil || !flags.FUA {
		return err
	}
	return e.sync()
}

func (e *File) fallocate(op string, mode uint32, off, length int64) error {
	e.known.Store(nil)
	err := retry(func() error {
		return unix.Fallocate(e.fd, mode|unix.FALLOC_FL_KEEP_SIZE, off, length)
	})
	if err == nil {
		return nil
	}
	if e.device && err == unix.EINVAL || err == unix.ENOSYS || err == unix.ENODEV {
		// Devices refuse ranges that are not aligned to their sectors.
		return errs.New(errs.Unsupported, op, e.path, err)
	}
	return errs.Wrap(op, e.path, err)
}

// run is a stretch of the file that holds data. Walking a large fragmented file for the end of a
// run costs more than a read, so the last one found is kept. It may be out of date, but then it
// only calls a hole data, which is always allowed; writes make no holes, and fallocate forgets
// it.
type run struct{ from, to int64 }

// Map asks the file system where data and holes are. A hole reads as zeroes.
func (e *File) Map(
	_ context.Context, off, length int64, most int, dst []nbd.Extent,
) ([]nbd.Extent, error) {
	end := off + length
	for n := 0; off < end && n < most; n++ {
		ext, err := e.extentAt(off)
		if err != nil {
			return dst, errs.Wrap("fileexport.Map", e.path, err)
		}
		dst = append(dst, ext)
		off += ext.Len
	}
	return dst, nil
}

// lastHole is the hole at the end of the file, unless that end has moved: what is missing is lost,
// not zero.
func (e *File) lastHole(off int64) (nbd.Extent, error) {
	end, err := unix.Seek(e.fd, 0, unix.SEEK_END)
	if err != nil {
		return nbd.Extent{}, err
	}
	if end < e.size {
		return nbd.Extent{Len: e.size - off}, nil
	}
	return nbd.Extent{Len: e.size - off, Hole: true, Zero: true}, nil
}

func (e *File) extentAt(off int64) (nbd.Extent, error) {
	if r := e.known.Load(); r != nil && r.from <= off && off < r.to {
		return nbd.Extent{Len: r.to - off}, nil
	}
	data, err := unix.Seek(e.fd, off, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO: // no data up to the end
		return e.lastHole(off)
	case err == unix.EINVAL || err == unix.EOPNOTSUPP: // no such knowledge
		return nbd.Extent{Len: e.size - off}, nil
	case err != nil:
		return nbd.Extent{}, err
	case data > off:
		return nbd.Extent{Len: min(data, e.size) - off, Hole: true, Zero: true}, nil
	}
	hole, err := unix.Seek(e.fd, off, unix.SEEK_HOLE)
	if err != nil && err != unix.ENXIO {
		return nbd.Extent{}, err
	}
	if err != nil || hole <= off || hole > e.size {
		hole = e.size // it changed between the two questions, or is larger than we serve
	}
	e.known.Store(&run{from: off, to: hole})
	return nbd.Extent{Len: hole - off}, nil
}
