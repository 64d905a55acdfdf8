package remote

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// ResizeVolume implements meta.VolumeChanges.
func (s *Service) ResizeVolume(ctx context.Context, c meta.Caller, name string, size int64,
	shrink bool) (meta.Volume, error) {
	r, err := s.call(ctx, meta.OpResizeVolume, meta.Args{Caller: c, Name: name, Size: size,
		Shrink: shrink})
	return r.Volume, err
}

// HandOver implements meta.VolumeChanges.
func (s *Service) HandOver(ctx context.Context, c meta.Caller, name string, force bool) (
	meta.Volume, error) {
	r, err := s.call(ctx, meta.OpHandOver, meta.Args{Caller: c, Name: name, Force: force})
	return r.Volume, err
}

// AwaitVolume implements meta.VolumeChanges. It waits for half of WaitMax at the most, so that a
// service that is silent because there is nothing to tell is not taken for one that is away.
func (s *Service) AwaitVolume(ctx context.Context, c meta.Caller, name string,
	seen meta.VolumeState, wait time.Duration) (meta.Volume, error) {
	wait = min(max(wait, 0), meta.VolumeAwaitMax)
	if s.opt.WaitMax >= 0 {
		wait = min(wait, s.opt.WaitMax/2)
	}
	r, err := s.call(ctx, meta.OpAwaitVolume, meta.Args{Caller: c, Name: name, Seen: seen,
		WaitMs: uint32(wait.Milliseconds())})
	return r.Volume, err
}
