package pebblekv

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
)

// Compact rewrites all tables, so that nothing takes space that was overwritten or deleted. Reads
// and commits go on meanwhile.
func (s *Store) Compact(ctx context.Context) error {
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.usable(ctx); err != nil {
		return errs.Wrap("pebblekv.Compact", "", err)
	}
	err := s.db.Compact(ctx, []byte{prefixMeta}, []byte{prefixUser + 1}, false)
	return errs.Wrap("pebblekv.Compact", "", err)
}
