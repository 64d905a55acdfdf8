package filter

import (
	"bytes"
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// readOnly is an export that takes no changes.
type readOnly struct{ nbd.Export }

// newReadOnly is readonly: every change is refused, and clients are told beforehand.
func newReadOnly(*params) wrapper {
	return func(exp nbd.Export, _ Options) (nbd.Export, error) { return readOnly{exp}, nil }
}

// WriteAt implements nbd.Export.
func (readOnly) WriteAt(context.Context, []byte, int64, bool) error {
	return errs.New(errs.ReadOnly, "filter.readonly", "", nil)
}

// ReadOnly implements nbd.Fixed.
func (readOnly) ReadOnly() bool { return true }

// Extras implements nbd.Wrapper: reading goes straight to the export below.
func (r readOnly) Extras() nbd.Extras {
	e := nbd.ExtrasOf(r.Export)
	e.Trimmer, e.Zeroer, e.Fixed = nil, nil, r
	return e
}

// checkWrite is an export that is written to only in order to compare.
type checkWrite struct{ nbd.Export }

// newCheckWrite is checkwrite: a write succeeds if what it writes is there already, and fails with
// EIO otherwise; nothing is changed. Copying an image to it compares the two.
func newCheckWrite(*params) wrapper {
	return func(exp nbd.Export, _ Options) (nbd.Export, error) { return checkWrite{exp}, nil }
}

// comparePiece is how much is read at a time.
const comparePiece = 256 << 10

// WriteAt implements nbd.Export.
func (c checkWrite) WriteAt(ctx context.Context, p []byte, off int64, _ bool) error {
	return c.compare(ctx, off, int64(len(p)), func(at int64, got []byte) bool {
		return bytes.Equal(got, p[at:at+int64(len(got))])
	})
}

// WriteZeroes implements nbd.Zeroer.
func (c checkWrite) WriteZeroes(ctx context.Context, off, length int64, _ nbd.ZeroFlags) error {
	zeroes := make([]byte, min(length, comparePiece))
	return c.compare(ctx, off, length, func(_ int64, got []byte) bool {
		return bytes.Equal(got, zeroes[:len(got)])
	})
}

// Trim implements nbd.Trimmer: what is there afterwards is anybody's guess, so anything is right.
func (checkWrite) Trim(context.Context, int64, int64, bool) error { return nil }

// Flush implements nbd.Export: nothing was written.
func (checkWrite) Flush(context.Context) error { return nil }

func (c checkWrite) compare(
	ctx context.Context, off, length int64, same func(at int64, got []byte) bool,
) error {
	buf := make([]byte, min(length, comparePiece))
	for at := int64(0); at < length; {
		got := buf[:min(length-at, int64(len(buf)))]
		if err := c.Export.ReadAt(ctx, got, off+at); err != nil {
			return err
		}
		if !same(at, got) {
			return errs.Newf(errs.IO, "filter.checkwrite", "", "other data at %d to %d", off+at,
				off+at+int64(len(got)))
		}
		at += int64(len(got))
	}
	return nil
}

// Extras implements nbd.Wrapper. Several writes together would change something.
func (c checkWrite) Extras() nbd.Extras {
	e := nbd.ExtrasOf(c.Export)
	e.Trimmer, e.Zeroer, e.Batcher = c, c, nil
	return e
}
