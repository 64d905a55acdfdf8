package remote

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Accessed implements meta.Accesses.
func (s *Service) Accessed(ctx context.Context, c meta.Caller, list []meta.Access) error {
	if len(list) > meta.AccessMax {
		return errs.Newf(errs.Invalid, "meta.Accessed", "", "%d accesses", len(list))
	}
	_, err := s.call(ctx, meta.OpAccessed, meta.Args{Caller: c, Accesses: list})
	return err
}
