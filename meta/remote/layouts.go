package remote

import (
	"context"

	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// GetLayout implements meta.Layouts.
func (s *Service) GetLayout(ctx context.Context, c meta.Caller, ino meta.Ino) (
	meta.Placed, error) {
	r, err := s.call(ctx, meta.OpGetLayout, meta.Args{Caller: c, Ino: ino})
	return r.Placed, err
}

// SetLayout implements meta.Layouts.
func (s *Service) SetLayout(ctx context.Context, c meta.Caller, ino meta.Ino,
	p layout.Policy) error {
	_, err := s.call(ctx, meta.OpSetLayout, meta.Args{Caller: c, Ino: ino, Policy: p})
	return err
}

// CreatePool implements meta.Pools.
func (s *Service) CreatePool(ctx context.Context, c meta.Caller, name string, servers []uint32) (
	meta.Pool, error) {
	r, err := s.call(ctx, meta.OpCreatePool, meta.Args{Caller: c, Name: name, Add: servers})
	return r.Pool, err
}

// ChangePool implements meta.Pools.
func (s *Service) ChangePool(ctx context.Context, c meta.Caller, name string,
	add, remove []uint32) (meta.Pool, error) {
	a := meta.Args{Caller: c, Name: name, Add: add, Drop: remove}
	r, err := s.call(ctx, meta.OpChangePool, a)
	return r.Pool, err
}

// RemovePool implements meta.Pools.
func (s *Service) RemovePool(ctx context.Context, c meta.Caller, name string) error {
	_, err := s.call(ctx, meta.OpRemovePool, meta.Args{Caller: c, Name: name})
	return err
}

// ListPools implements meta.Pools.
func (s *Service) ListPools(ctx context.Context, c meta.Caller) ([]meta.Pool, error) {
	r, err := s.call(ctx, meta.OpListPools, meta.Args{Caller: c})
	return r.Pools, err
}
