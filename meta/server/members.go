package server

import (
	"context"

	"github.com/sluice-storage/sluice/meta"
)

// dispatchMembers is the part of dispatch for hosts, and for those who look at them.
func (s *Server) dispatchMembers(ctx context.Context, op meta.Op, a *meta.Args, room int,
	r *meta.Result) (err error) {

	switch op {
	case meta.OpBeat:
		err = s.service.Beat(ctx, a.Caller, a.Host)
	case meta.OpHosts:
		r.Hosts, err = s.service.Hosts(ctx)
	case meta.OpListClients:
		r.Clients, err = s.service.ListClients(ctx, a.Caller, a.Cookie,
			int(min(a.Max, meta.ClientPageMax)))
		r.Clients = cutPage(r.Clients, room, func(page []meta.Client) int {
			return len((&meta.Result{Clients: page}).Append(op, nil))
		})
	case meta.OpRemoveServer:
		if a.Registry != nil {
			err = s.service.RemoveServer(ctx, a.Caller, a.Registry.Server)
		}
	default:
		return s.dispatchRegistry(ctx, op, a, room, r)
	}
	return err
}
