package remote

import (
	"context"

	"github.com/sluice-storage/sluice/meta"
)

// Beat implements meta.Membership.
func (s *Service) Beat(ctx context.Context, c meta.Caller, h meta.Host) error {
	_, err := s.call(ctx, meta.OpBeat, meta.Args{Caller: c, Host: h})
	return err
}

// Hosts implements meta.Membership.
func (s *Service) Hosts(ctx context.Context) ([]meta.Host, error) {
	r, err := s.call(ctx, meta.OpHosts, meta.Args{})
	return r.Hosts, err
}

// ListClients implements meta.Membership.
func (s *Service) ListClients(ctx context.Context, c meta.Caller, after uint64, max int) (
	[]meta.Client, error) {
	n, err := pageOf(meta.OpListClients, max, meta.ClientPageMax)
	if err != nil {
		return nil, err
	}
	r, err := s.call(ctx, meta.OpListClients, meta.Args{Caller: c, Cookie: after, Max: n})
	return r.Clients, err
}

// RemoveServer implements meta.Membership.
func (s *Service) RemoveServer(ctx context.Context, c meta.Caller, id uint32) error {
	_, err := s.call(ctx, meta.OpRemoveServer, meta.Args{Caller: c,
		Registry: &meta.RegistryArgs{Server: id}})
	return err
}
