package stripe

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/wire"
)

// The checks below are the same for every engine, so that all of them refuse alike.

// BufBytes adds up the lengths of the buffers.
func BufBytes(bufs [][]byte) int64 {
	var n int64
	for _, b := range bufs {
		n += int64(len(b))
	}
	return n
}

// CheckRange refuses a request whose context has ended, that names no object, or whose range no
// object can hold.
func CheckRange(ctx context.Context, op string, id ObjectID, off, length int64) error {
	if err := CheckID(ctx, op, id); err != nil {
		return err
	}
	switch {
	case off < 0 || length < 0:
		return errs.Newf(errs.Invalid, op, id.name(), "offset %d, length %d is negative", off, length)
	case off > MaxObjectBytes || length > MaxObjectBytes-off:
		return errs.Newf(errs.TooBig, op, id.name(),
			"offset %d plus length %d is above the limit of %d", off, length, int64(MaxObjectBytes))
	}
	return nil
}

// CheckSums refuses sums that are not one for each block of the range.
func CheckSums(op string, id ObjectID, off, length int64, sums []uint32) error {
	const block = crc32c.BlockBytes
	if off%block == 0 && length%block == 0 && int64(len(sums)) == length/block {
		return nil
	}
	return errs.Newf(errs.Invalid, op, id.name(), "%d sums for offset %d, length %d: one for each "+
		"whole block of %d", len(sums), off, length, block)
}

// SplitStamps takes the stamps of a write apart: its own, and those of further requests that it
// includes.
func SplitStamps(op string, id ObjectID, stamps []wire.Stamp) (own wire.Stamp, more []wire.Stamp,
	err error) {
	if len(stamps) == 0 {
		return own, nil, nil
	}
	if len(stamps)-1 > StampsMax {
		return own, nil, errs.Newf(errs.Invalid, op, id.name(), "%d further stamps; at most %d",
			len(stamps)-1, StampsMax)
	}
	return stamps[0], stamps[1:], nil
}

// CheckID refuses a request whose context has ended or that names no object.
func CheckID(ctx context.Context, op string, id ObjectID) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap(op, id.name(), err)
	}
	if id == (ObjectID{}) {
		return errs.Newf(errs.Invalid, op, "", "the zero id names no object")
	}
	return nil
}

// CheckStamp refuses a request from before the truncation that the object has seen last.
func CheckStamp(op string, id ObjectID, have uint64, st wire.Stamp) error {
	if st.TruncSeq >= have {
		return nil
	}
	return errs.Newf(errs.Stale, op, id.name(),
		"truncate sequence %d is older than the object's %d", st.TruncSeq, have)
}

// CheckFence refuses a generation below the file's minimal one.
func CheckFence(op string, id ObjectID, minGen uint32) error {
	if id.Gen >= minGen {
		return nil
	}
	return errs.Newf(errs.Fenced, op, id.name(), "generation is below %d", minGen)
}

// CheckEpoch refuses a writer that another one has taken over from.
func CheckEpoch(op string, id ObjectID, minEpoch uint32, st wire.Stamp) error {
	if st.Epoch >= minEpoch {
		return nil
	}
	return errs.Newf(errs.Fenced, op, id.name(),
		"another writer has taken over: its generation is %d, this one's %d", minEpoch, st.Epoch)
}

func (id ObjectID) name() string { return "object " + id.String() }
