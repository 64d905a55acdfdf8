package remote

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// RemoveTree implements meta.Trees.
func (s *Service) RemoveTree(ctx context.Context, c meta.Caller, dir meta.Ino, name string) error {
	_, err := s.call(ctx, meta.OpRemoveTree, meta.Args{Caller: c, Dir: dir, Name: name})
	return err
}

// Check implements meta.Upkeep. The number of the step makes it safe to repeat.
func (s *Service) Check(ctx context.Context, c meta.Caller, step meta.CheckStep) (
	meta.CheckPage, error) {
	r, err := s.call(ctx, meta.OpCheck, meta.Args{Caller: c, Step: step})
	return r.Check, err
}

// Dump implements meta.Upkeep.
func (s *Service) Dump(ctx context.Context, c meta.Caller, view uint64, after []byte) (
	meta.DumpPage, error) {
	if len(after) > meta.DumpKeyMax {
		return meta.DumpPage{}, errs.Newf(errs.TooBig, "meta.dump", "", "a key of %d bytes", len(after))
	}
	r, err := s.call(ctx, meta.OpDump, meta.Args{Caller: c, View: view, After: after})
	return r.Dump, err
}
