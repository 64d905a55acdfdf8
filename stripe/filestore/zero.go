package filestore

import (
	"context"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Zero implements stripe.Zeroer: a hole where the object has bytes, and one byte written at the end
// where it has none, which makes the rest a hole.
func (s *Store) Zero(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	d stripe.Durability) error {
	if err := stripe.CheckRange(ctx, "filestore.Zero", id, off, length); err != nil {
		return err
	}
	if length == 0 {
		return s.WriteAt(ctx, id, nil, off, st, d)
	}
	if err := s.Punch(ctx, id, off, length, st, stripe.Volatile); err != nil {
		return err
	}
	return s.WriteAt(ctx, id, [][]byte{{0}}, off+length-1, st, d)
}

// Stats implements stripe.Counter; this engine counts nothing.
func (s *Store) Stats() stripe.Stats { return stripe.Stats{} }
