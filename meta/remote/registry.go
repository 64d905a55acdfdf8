package remote

import (
	"context"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// ask is call for the registry.
func (s *Service) ask(ctx context.Context, op meta.Op, a meta.Args) (meta.RegistryResult, error) {
	r, err := s.call(ctx, op, a)
	if err != nil || r.Registry == nil {
		return meta.RegistryResult{}, err
	}
	return *r.Registry, nil
}

// pageOf refuses pages of nothing, and bounds others.
func pageOf(op meta.Op, max, limit int) (uint32, error) {
	if max <= 0 {
		return 0, errs.Newf(errs.Invalid, "meta."+op.String(), "", "a page of %d", max)
	}
	return uint32(min(max, limit)), nil
}

// CreateToken implements meta.Tokens.
func (s *Service) CreateToken(ctx context.Context, c meta.Caller, t meta.Token) (
	meta.Token, error) {
	r, err := s.ask(ctx, meta.OpCreateToken,
		meta.Args{Caller: c, Registry: &meta.RegistryArgs{Token: t}})
	return r.Token, err
}

// ListTokens implements meta.Tokens.
func (s *Service) ListTokens(ctx context.Context, c meta.Caller, after uint64, max int) (
	[]meta.Token, error) {
	n, err := pageOf(meta.OpListTokens, max, meta.MemberPageMax)
	if err != nil {
		return nil, err
	}
	r, err := s.ask(ctx, meta.OpListTokens, meta.Args{Caller: c, Cookie: after, Max: n})
	return r.Tokens, err
}

// RemoveToken implements meta.Tokens.
func (s *Service) RemoveToken(ctx context.Context, c meta.Caller, id uint64) error {
	_, err := s.call(ctx, meta.OpRemoveToken, meta.Args{Caller: c, Cookie: id})
	return err
}

// UseToken implements meta.Tokens.
func (s *Service) UseToken(ctx context.Context, c meta.Caller, u meta.TokenUse) (
	meta.Member, error) {
	r, err := s.ask(ctx, meta.OpUseToken, meta.Args{Caller: c, Registry: &meta.RegistryArgs{Use: u}})
	return r.Member, err
}

// ListMembers implements meta.Members.
func (s *Service) ListMembers(ctx context.Context, c meta.Caller, kind identity.Kind, after string,
	max int) ([]meta.Member, error) {
	n, err := pageOf(meta.OpListMembers, max, meta.MemberPageMax)
	if err != nil {
		return nil, err
	}
	r, err := s.ask(ctx, meta.OpListMembers, meta.Args{Caller: c, Name: after, Max: n,
		Registry: &meta.RegistryArgs{Kind: kind}})
	return r.Members, err
}

// GetMember implements meta.Members.
func (s *Service) GetMember(ctx context.Context, c meta.Caller, kind identity.Kind, name string) (
	meta.Member, error) {
	r, err := s.ask(ctx, meta.OpGetMember, meta.Args{Caller: c, Name: name,
		Registry: &meta.RegistryArgs{Kind: kind}})
	return r.Member, err
}

// EnlistMember implements meta.Members.
func (s *Service) EnlistMember(ctx context.Context, c meta.Caller, m meta.Member) (
	meta.Member, error) {
	r, err := s.ask(ctx, meta.OpEnlistMember,
		meta.Args{Caller: c, Registry: &meta.RegistryArgs{Member: m}})
	return r.Member, err
}

// RenewMember implements meta.Members.
func (s *Service) RenewMember(ctx context.Context, c meta.Caller, kind identity.Kind, name string,
	by identity.Serial, cert meta.Certificate) (meta.Member, error) {
	r, err := s.ask(ctx, meta.OpRenewMember, meta.Args{Caller: c, Name: name,
		Registry: &meta.RegistryArgs{Kind: kind, Serial: by, Certificate: cert}})
	return r.Member, err
}

// RemoveMember implements meta.Members.
func (s *Service) RemoveMember(ctx context.Context, c meta.Caller, kind identity.Kind,
	name string) error {
	_, err := s.call(ctx, meta.OpRemoveMember, meta.Args{Caller: c, Name: name,
		Registry: &meta.RegistryArgs{Kind: kind}})
	return err
}

// ListDenied implements meta.Denials.
func (s *Service) ListDenied(ctx context.Context, c meta.Caller, after identity.Serial, max int) (
	[]meta.Denied, error) {
	n, err := pageOf(meta.OpListDenied, max, meta.DeniedPageMax)
	if err != nil {
		return nil, err
	}
	r, err := s.ask(ctx, meta.OpListDenied, meta.Args{Caller: c, Max: n,
		Registry: &meta.RegistryArgs{Serial: after}})
	return r.Denied, err
}

// Registry implements meta.Denials.
func (s *Service) Registry(ctx context.Context, c meta.Caller) (meta.Registry, error) {
	r, err := s.ask(ctx, meta.OpRegistry, meta.Args{Caller: c})
	return r.Registry, err
}

// SetGeneration implements meta.Denials.
func (s *Service) SetGeneration(ctx context.Context, c meta.Caller, what identity.KeyKind,
	g meta.Generation) (meta.Registry, error) {
	r, err := s.ask(ctx, meta.OpSetGeneration, meta.Args{Caller: c,
		Registry: &meta.RegistryArgs{Key: what, Generation: g}})
	return r.Registry, err
}

// ReserveServers implements meta.ServerKeys.
func (s *Service) ReserveServers(ctx context.Context, c meta.Caller, host string, n int) (
	[]uint32, error) {
	if n < 1 || n > meta.ReserveMax {
		return nil, errs.Newf(errs.Invalid, "meta.ReserveServers", "", "%d ids, want 1 to %d", n,
			meta.ReserveMax)
	}
	r, err := s.ask(ctx, meta.OpReserveServers, meta.Args{Caller: c, Name: host, Max: uint32(n)})
	return r.Servers, err
}

// ServerKeys implements meta.ServerKeys.
func (s *Service) ServerKeys(ctx context.Context, c meta.Caller, id, have uint32) (
	capability.Ring, error) {
	r, err := s.ask(ctx, meta.OpServerKeys, meta.Args{Caller: c,
		Registry: &meta.RegistryArgs{Server: id, Have: have}})
	if err == nil {
		err = errs.Wrap("meta.ServerKeys", "", r.Ring.Check())
	}
	return r.Ring, err
}
