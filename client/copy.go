package client

import (
	"context"
	"errors"
	"io"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
)

// copyBytes is how much of a file is in memory while it is copied: enough for all servers to have
// something to do.
const copyBytes = 4 << 20

// CopyRange copies up to n bytes of this file from off on to another one, or to another place in
// this one that does not overlap, in this process. Holes stay holes; where they come to lie over
// data this becomes zeroes and keeps its space. It returns how many bytes it has copied: less than
// n at the end of the source, and where it fails, with the error.
func (f *File) CopyRange(ctx context.Context, off int64, to *File, toOff, n int64) (int64, error) {
	c := copying{from: f, to: to, shift: toOff - off}
	done, err := c.run(ctx, off, n)
	return done, errs.Wrap("client.CopyRange", "", err)
}

// copying is one such request.
type copying struct {
	from, to *File
	shift    int64 // from a place in the source to that in the destination
	buf      []byte
}

func (c *copying) run(ctx context.Context, off, n int64) (int64, error) {
	if off < 0 || n < 0 || off+c.shift < 0 || off > layout.FileSizeMax-n {
		return 0, errs.Newf(errs.Invalid, "", "", "%d bytes from %d to %d", n, off, off+c.shift)
	}
	if c.from.node == c.to.node && max(c.shift, -c.shift) < n {
		return 0, errs.Newf(errs.Invalid, "", "", "the ranges overlap")
	}
	if err := c.to.room("", off+c.shift, n); err != nil {
		return 0, err
	}
	size, err := c.from.sizeFor(ctx, off+n)
	if err != nil || off >= size {
		return 0, err
	}
	end := min(off+n, size)
	own := c.from.fs.TryTake(copyBytes)
	if own != nil {
		defer own.Return()
		c.buf = own.Bytes()[:copyBytes]
	} else {
		c.buf = make([]byte, min(copyBytes, end-off))
	}
	at := off
	for at < end && err == nil {
		at, err = c.some(ctx, at, end)
	}
	if errors.Is(err, io.EOF) { // the source was cut meanwhile
		err = nil
	}
	return at - off, err
}

// some copies as much as one map of the source tells of, and returns how far it came.
func (c *copying) some(ctx context.Context, at, end int64) (int64, error) {
	extents, err := c.from.Map(ctx, at, end-at)
	if err == nil && len(extents) == 0 {
		err = io.EOF
	}
	if err != nil {
		return at, err
	}
	for _, e := range extents {
		if e.Hole {
			err = c.hole(ctx, e.Off, e.Off+e.Len, end)
			at = e.Off + e.Len
		} else {
			at, err = c.data(ctx, e.Off, e.Off+e.Len)
		}
		if err != nil {
			break
		}
	}
	return at, err
}

// data copies [at, end) of the source and returns how far it came.
func (c *copying) data(ctx context.Context, at, end int64) (int64, error) {
	for at < end {
		p := c.buf[:min(end-at, int64(len(c.buf)))]
		n, err := c.from.ReadAt(ctx, p, at)
		if err != nil && !(errors.Is(err, io.EOF) && n > 0) {
			return at, err
		}
		n, err = c.to.WriteAt(ctx, p[:n], at+c.shift)
		at += int64(n)
		if err != nil {
			return at, err
		}
	}
	return at, nil
}

// hole makes what a hole [at, end) of the source comes to lie on zeroes. Behind the end of the
// destination there is nothing to do but for its length, if the hole is the last of the range.
func (c *copying) hole(ctx context.Context, at, end, last int64) error {
	size, err := c.to.sizeFor(ctx, end+c.shift)
	if err != nil {
		return err
	}
	from, to := at+c.shift, end+c.shift
	if below := min(to, size); from < below {
		if err := c.zero(ctx, from, below); err != nil {
			return err
		}
	}
	if end < last || to <= size {
		return nil
	}
	_, err = c.to.WriteAt(ctx, []byte{0}, to-1)
	return err
}

// zero clears a range of the destination.
func (c *copying) zero(ctx context.Context, from, to int64) error {
	done, err := c.to.writeSmall(ctx, writing, 0, -1, func(data []byte) {
		size := int64(len(data))
		clear(data[min(from, size):min(to, size)])
	})
	if done || err != nil {
		return err
	}
	return c.to.blank(ctx, from, to)
}
