package remote

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Numbers implements meta.Deferrals. After a lost answer the numbers are nobody's.
func (s *Service) Numbers(ctx context.Context, c meta.Caller, n int) (meta.Ino, int, error) {
	r, err := s.call(ctx, meta.OpNumbers, meta.Args{Caller: c, Max: uint32(min(n, meta.NumbersMax))})
	return meta.Ino(r.First), int(r.Off), err
}

// Hold implements meta.Deferrals.
func (s *Service) Hold(ctx context.Context, c meta.Caller, dir meta.Ino, files []meta.Ino) (
	[]meta.Settled, error) {
	r, err := s.call(ctx, meta.OpHold, meta.Args{Caller: c, Dir: dir, Files: files})
	if err == nil && len(r.Settled) != 1+len(files) {
		err = errs.Newf(errs.Protocol, "meta.hold", "", "%d answers for %d files", len(r.Settled),
			len(files))
	}
	return r.Settled, err
}

// TellMany implements meta.Deferrals.
func (s *Service) TellMany(ctx context.Context, c meta.Caller, epoch uint64,
	list []meta.Deferred) ([]meta.Settled, error) {
	r, err := s.call(ctx, meta.OpTellMany, meta.Args{Caller: c, Version: epoch, Deferred: list})
	if err == nil && len(r.Settled) != len(list) {
		err = errs.Newf(errs.Protocol, "meta.tellmany", "", "%d answers for %d operations",
			len(r.Settled), len(list))
	}
	return r.Settled, err
}
