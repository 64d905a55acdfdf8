package server

import (
	"context"

	"github.com/sluice-storage/sluice/meta"
)

// dispatchUpkeep is the part of dispatch for accesses, trees, and the store as a whole.
func (s *Server) dispatchUpkeep(ctx context.Context, op meta.Op, a *meta.Args, room int,
	r *meta.Result) (err error) {

	switch op {
	case meta.OpCheck:
		r.Check, err = s.service.Check(ctx, a.Caller, a.Step)
	case meta.OpDump:
		r.Dump, err = s.service.Dump(ctx, a.Caller, a.View, a.After)
	case meta.OpAccessed:
		err = s.service.Accessed(ctx, a.Caller, a.Accesses)
	case meta.OpRemoveTree:
		err = s.service.RemoveTree(ctx, a.Caller, a.Dir, a.Name)
	default:
		return s.dispatchMembers(ctx, op, a, room, r)
	}
	return err
}
