package memstore

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Memory needs no sums to be kept: they are computed when somebody asks for them, of what the
// reader has got. A page whose sums were given is the same bytes, and so are its sums.

// ReadSums implements stripe.Summer.
func (s *Store) ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	const op = "memstore.ReadSums"
	n := stripe.BufBytes(bufs)
	if err := stripe.CheckRange(ctx, op, id, off, n); err != nil {
		return err
	}
	if err := stripe.CheckSums(op, id, off, n, sums); err != nil {
		return err
	}
	o, err := s.enter(op, id)
	if err != nil {
		return err
	}
	defer s.mu.RUnlock()
	s.read(o, bufs, off)
	if o == nil {
		for i := range sums {
			sums[i] = crc32c.ZeroBlock
		}
		return nil
	}
	sumBlocks(bufs, sums)
	return nil
}

// sumBlocks sums the buffers block by block, which may lie across several of them.
func sumBlocks(bufs [][]byte, sums []uint32) {
	var crc uint32
	left, k := crc32c.BlockBytes, 0
	for _, b := range bufs {
		for len(b) > 0 {
			n := min(left, len(b))
			crc = crc32c.Update(crc, b[:n])
			b = b[n:]
			if left -= n; left == 0 {
				sums[k], crc, left = crc, 0, crc32c.BlockBytes
				k++
			}
		}
	}
}

// WriteSums implements stripe.Summer.
func (s *Store) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, _ stripe.Durability) error {
	const op = "memstore.WriteSums"
	if sums != nil {
		if err := stripe.CheckSums(op, id, off, stripe.BufBytes(bufs), sums); err != nil {
			return err
		}
	}
	st, more, err := stripe.SplitStamps(op, id, stamps)
	if err != nil {
		return err
	}
	return s.write(ctx, op, id, bufs, off, request{Stamp: st, more: more, s: s})
}

// Admit implements stripe.Admitter.
func (s *Store) Admit(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	space int64) (repeated bool, err error) {
	const op = "memstore.Admit"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return false, err
	}
	o, err := s.enter(op, id)
	if err != nil {
		return false, err
	}
	defer s.mu.RUnlock()
	if err := stripe.CheckEpoch(op, id, s.epochs[id.File], st); err != nil {
		return false, err
	}
	if s.seen.Repeated(st) {
		return true, nil
	}
	if o != nil {
		if err := stripe.CheckStamp(op, id, o.info(id).TruncSeq, st); err != nil {
			return false, err
		}
	}
	if free := s.budget.left.Load() * pageBytes; space > free {
		return false, errs.Newf(errs.NoSpace, op, "object "+id.String(),
			"%d bytes are free, %d would be needed", free, space)
	}
	return false, nil
}

// Place implements stripe.Placer: memory is one place.
func (s *Store) Place(_ stripe.ObjectID, off int64) (member int, run int64) {
	return 0, max(stripe.MaxObjectBytes-off, 1)
}

// Members implements stripe.Placer.
func (s *Store) Members() int { return 1 }
