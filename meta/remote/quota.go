package remote

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// SetQuota implements meta.Quotas.
func (s *Service) SetQuota(ctx context.Context, c meta.Caller, dir meta.Ino, limit meta.Usage) (
	meta.Quota, error) {
	r, err := s.call(ctx, meta.OpSetQuota, meta.Args{Caller: c, Dir: dir, Limit: limit})
	return r.Quota, err
}

// GetQuota implements meta.Quotas.
func (s *Service) GetQuota(ctx context.Context, c meta.Caller, ino meta.Ino) (meta.Quota, error) {
	r, err := s.call(ctx, meta.OpGetQuota, meta.Args{Caller: c, Ino: ino})
	return r.Quota, err
}

// ListQuotas implements meta.Quotas.
func (s *Service) ListQuotas(ctx context.Context, c meta.Caller, after uint64, max int) (
	[]meta.Quota, error) {
	if max <= 0 {
		return nil, errs.Newf(errs.Invalid, "meta.ListQuotas", "", "a page of %d quotas", max)
	}
	r, err := s.call(ctx, meta.OpListQuotas, meta.Args{Caller: c, Cookie: after,
		Max: uint32(min(max, meta.QuotaPageMax))})
	return r.Quotas, err
}

// RemoveQuota implements meta.Quotas.
func (s *Service) RemoveQuota(ctx context.Context, c meta.Caller, dir meta.Ino) error {
	_, err := s.call(ctx, meta.OpRemoveQuota, meta.Args{Caller: c, Dir: dir})
	return err
}

// Grow implements meta.Quotas.
func (s *Service) Grow(ctx context.Context, c meta.Caller, ino meta.Ino, end int64) (int64, error) {
	r, err := s.call(ctx, meta.OpGrow, meta.Args{Caller: c, Ino: ino, Size: end})
	return r.Off, err
}
