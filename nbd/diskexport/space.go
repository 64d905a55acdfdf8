package diskexport

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// Trim punches a hole, or discards. Where that is not possible it is Unsupported, which for a
// hint is fine.
func (e *Export) Trim(ctx context.Context, off, length int64, fua bool) error {
	const op = "diskexport.Trim"
	if e.readOnly {
		return errs.New(errs.ReadOnly, op, e.d.name, nil)
	}
	err := e.reshape(ctx, off, length, func(p *part, s span) error {
		if p.block {
			return p.discard(op, s)
		}
		return p.fallocate(op, unix.FALLOC_FL_PUNCH_HOLE, s)
	})
	if err != nil || !fua {
		return err
	}
	return e.d.flush(ctx)
}

// WriteZeroes punches a hole, or zeroes the range in place where it must stay allocated or holes
// are not possible. For files both take no time that depends on the length; a block device may
// have to write zeroes, which is not what Fast asks for. Where there is neither, it is Unsupported
// and the server writes zeroes.
func (e *Export) WriteZeroes(ctx context.Context, off, length int64, f nbd.ZeroFlags) error {
	const op = "diskexport.WriteZeroes"
	if e.readOnly {
		return errs.New(errs.ReadOnly, op, e.d.name, nil)
	}
	if f.Fast && !e.d.zeroesFast(f.NoHole) {
		return errs.Newf(errs.Unsupported, op, e.d.name, "not all members are known to be fast")
	}
	err := e.reshape(ctx, off, length, func(p *part, s span) error {
		err := error(errs.Unsupported)
		if !f.NoHole {
			err = p.fallocate(op, unix.FALLOC_FL_PUNCH_HOLE, s)
		}
		if errs.KindOf(err) == errs.Unsupported && !(f.Fast && p.block) {
			err = p.fallocate(op, unix.FALLOC_FL_ZERO_RANGE, s)
		}
		return err
	})
	if err != nil || !f.FUA {
		return err
	}
	return e.d.flush(ctx)
}

// zeroesFast tells whether all members of a set zero fast: one that finds out that it cannot when
// others have done it already would have changed something.
func (d *disk) zeroesFast(noHole bool) bool {
	if len(d.parts) == 1 {
		return true
	}
	for _, p := range d.parts {
		// Behind the end of a file nothing changes.
		behind := (p.size + blockBytes) &^ (blockBytes - 1)
		if p.block || noHole ||
			p.fallocate("", unix.FALLOC_FL_PUNCH_HOLE, span{behind, behind + blockBytes}) != nil {
			return false
		}
	}
	return true
}

// reshape changes what a range is, on each member once, while nobody writes there.
func (e *Export) reshape(ctx context.Context, off, length int64,
	fn func(p *part, s span) error) error {
	d := e.d
	return d.change(ctx, off, length, func() error {
		if d.needsRanges() {
			var h heldRange
			d.ranges.lock(&h, off, length, alone)
			defer d.ranges.unlock(&h)
		}
		for i, p := range d.parts {
			if s, ok := d.span(i, off, length); ok {
				if err := fn(p, s); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// fallocate changes a range of a member. A block device drops its cached pages before it finds out
// that it cannot do so: what is dirty must be on the device until it is known that it can.
func (p *part) fallocate(op string, mode uint32, s span) error {
	p.known.Store(nil)
	does := &p.does[0]
	if mode == unix.FALLOC_FL_ZERO_RANGE {
		does = &p.does[1]
	}
	if p.block {
		switch does.Load() {
		case doesNot:
			return errs.New(errs.Unsupported, op, p.path, nil)
		case doesUnknown:
			if err := p.disk.sync(); err != nil {
				return err
			}
		}
	}
	err := retry(func() error {
		return unix.Fallocate(int(p.file.Fd()), mode|unix.FALLOC_FL_KEEP_SIZE, s.from, s.to-s.from)
	})
	switch {
	case err == nil:
		does.Store(doesIt)
		return nil
	case errors.Is(err, unix.EOPNOTSUPP):
		does.Store(doesNot)
	}
	if p.block && errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) ||
		errors.Is(err, unix.ENODEV) {
		// Devices refuse ranges that are not aligned to their sectors.
		return errs.New(errs.Unsupported, op, p.path, err)
	}
	return errs.Wrap(op, p.path, err)
}

// Whether a block device can zero in some way.
const (
	doesUnknown = iota
	doesIt
	doesNot
)

// discard tells a block device that nobody needs the range, rounded inwards to its sectors.
func (p *part) discard(op string, s span) error {
	sector := logicalBlock(p)
	from, to := (s.from+sector-1)/sector*sector, s.to/sector*sector
	if from >= to {
		return nil
	}
	err := retry(func() error { return discardRange(int(p.file.Fd()), from, to-from) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.ENOTTY) {
		return errs.New(errs.Unsupported, op, p.path, err)
	}
	return errs.Wrap(op, p.path, err)
}

// run is a stretch of a member that holds data. Walking a large fragmented file for the end of a
// run costs more than a read, so the last one found is kept. It may be out of date, but then it
// only calls a hole data, which is always allowed; writes make no holes, and fallocate forgets
// it.
type run struct{ from, to int64 }

// Map asks the file systems where data and holes are. A hole reads as zeroes.
func (e *Export) Map(
	ctx context.Context, off, length int64, most int, dst []nbd.Extent,
) ([]nbd.Extent, error) {
	if err := e.d.settled(ctx, off, length); err != nil {
		return dst, err
	}
	return e.d.extents(off, length, most, dst)
}

// extents appends what the range consists of, neighbours of one kind in one.
func (d *disk) extents(off, length int64, most int, dst []nbd.Extent) ([]nbd.Extent, error) {
	first := len(dst)
	for end := off + length; off < end; {
		member, at, n := d.place(off)
		ext, err := d.parts[member].extentAt(at, min(n, end-off))
		if err != nil {
			return dst, errs.Wrap("diskexport.Map", d.parts[member].path, err)
		}
		off += ext.Len
		if k := len(dst) - 1; k >= first && dst[k].Hole == ext.Hole && dst[k].Zero == ext.Zero {
			dst[k].Len += ext.Len
			continue
		}
		if len(dst)-first == most {
			break
		}
		dst = append(dst, ext)
	}
	return dst, nil
}

// extentAt tells what a member holds from at on, for at most n bytes.
func (p *part) extentAt(at, n int64) (nbd.Extent, error) {
	end := at + n
	if r := p.known.Load(); r != nil && r.from <= at && at < r.to {
		return nbd.Extent{Len: min(r.to, end) - at}, nil
	}
	fd := int(p.file.Fd())
	data, err := unix.Seek(fd, at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // no data up to the end
		return p.lastHole(at, n)
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP): // no such knowledge
		return nbd.Extent{Len: n}, nil
	case err != nil:
		return nbd.Extent{}, err
	case data > at:
		return nbd.Extent{Len: min(data, end) - at, Hole: true, Zero: true}, nil
	}
	hole, err := unix.Seek(fd, at, unix.SEEK_HOLE)
	if errors.Is(err, unix.ENXIO) {
		hole = p.size
	} else if err != nil {
		return nbd.Extent{}, err
	}
	if hole <= at { // it has been punched just now
		return nbd.Extent{Len: n}, nil
	}
	p.known.Store(&run{at, hole})
	return nbd.Extent{Len: min(hole, end) - at}, nil
}

// lastHole is the hole at the end of a file, unless that end has moved: what is missing is lost,
// not zero.
func (p *part) lastHole(at, n int64) (nbd.Extent, error) {
	end, err := unix.Seek(int(p.file.Fd()), 0, unix.SEEK_END)
	if err != nil {
		return nbd.Extent{}, err
	}
	lost := end < p.size
	return nbd.Extent{Len: n, Hole: !lost, Zero: !lost}, nil
}
