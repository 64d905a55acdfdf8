package server

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// dispatchRegistry is the last part of dispatch: who may join, and who has.
func (s *Server) dispatchRegistry(ctx context.Context, op meta.Op, a *meta.Args, room int,
	r *meta.Result) (err error) {

	g, out := a.Registry, &meta.RegistryResult{}
	if g == nil {
		g = &meta.RegistryArgs{}
	}
	r.Registry = out
	size := func() int { return len(r.Append(op, nil)) }
	switch c := a.Caller; op {
	case meta.OpCreateToken:
		out.Token, err = s.service.CreateToken(ctx, c, g.Token)
	case meta.OpListTokens:
		out.Tokens, err = s.service.ListTokens(ctx, c, a.Cookie, int(min(a.Max, meta.MemberPageMax)))
		out.Tokens = cutPage(out.Tokens, room, func(p []meta.Token) int {
			out.Tokens = p
			return size()
		})
	case meta.OpRemoveToken:
		err = s.service.RemoveToken(ctx, c, a.Cookie)
	case meta.OpUseToken:
		out.Member, err = s.service.UseToken(ctx, c, g.Use)
	case meta.OpListMembers:
		out.Members, err = s.service.ListMembers(ctx, c, g.Kind, a.Name,
			int(min(a.Max, meta.MemberPageMax)))
		out.Members = cutPage(out.Members, room, func(p []meta.Member) int {
			out.Members = p
			return size()
		})
	case meta.OpGetMember:
		out.Member, err = s.service.GetMember(ctx, c, g.Kind, a.Name)
	case meta.OpEnlistMember:
		out.Member, err = s.service.EnlistMember(ctx, c, g.Member)
	case meta.OpRenewMember:
		out.Member, err = s.service.RenewMember(ctx, c, g.Kind, a.Name, g.Serial, g.Certificate)
	case meta.OpRemoveMember:
		err = s.service.RemoveMember(ctx, c, g.Kind, a.Name)
	case meta.OpListDenied:
		out.Denied, err = s.service.ListDenied(ctx, c, g.Serial, int(min(a.Max, meta.DeniedPageMax)))
		out.Denied = cutPage(out.Denied, room, func(p []meta.Denied) int {
			out.Denied = p
			return size()
		})
	case meta.OpRegistry:
		out.Registry, err = s.service.Registry(ctx, c)
	case meta.OpSetGeneration:
		out.Registry, err = s.service.SetGeneration(ctx, c, g.Key, g.Generation)
	case meta.OpReserveServers:
		out.Servers, err = s.service.ReserveServers(ctx, c, a.Name,
			int(min(a.Max, meta.ReserveMax+1)))
	case meta.OpServerKeys:
		out.Ring, err = s.service.ServerKeys(ctx, c, g.Server, g.Have)
	default:
		err = errs.Newf(errs.Unsupported, "meta.Serve", "", "operation %d", op)
	}
	return err
}
