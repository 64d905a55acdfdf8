package metatest

import (
	"context"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/meta"
)

// As is a service to which some requests come from a member, as they do from package server when
// the member has proved who it is: those that the suite makes as one. The service must be a
// meta.Sentry.
func As(s meta.Service, p meta.Peer) meta.Service {
	return &member{Service: s, peer: p, sentry: s.(meta.Sentry)}
}

type member struct {
	meta.Service
	peer   meta.Peer
	sentry meta.Sentry
}

// from says in a context, and in a caller, who asks.
func (m *member) from(ctx context.Context, c *meta.Caller, sessions ...uint64) (
	context.Context, error) {

	if c != nil {
		c.Peer = m.peer
		sessions = append(sessions, c.Session)
	}
	return meta.WithPeer(ctx, m.peer), m.sentry.Admit(m.peer, sessions...)
}

func (m *member) ReserveServers(ctx context.Context, c meta.Caller, host string, n int) (
	[]uint32, error) {

	ctx, err := m.from(ctx, &c)
	if err != nil {
		return nil, err
	}
	return m.Service.ReserveServers(ctx, c, host, n)
}

func (m *member) ServerKeys(ctx context.Context, c meta.Caller, id, have uint32) (
	capability.Ring, error) {

	ctx, err := m.from(ctx, &c)
	if err != nil {
		return nil, err
	}
	return m.Service.ServerKeys(ctx, c, id, have)
}

func (m *member) Join(ctx context.Context, s meta.Server, mac [32]byte) error {
	ctx, err := m.from(ctx, nil)
	if err != nil {
		return err
	}
	return m.Service.Join(ctx, s, mac)
}

func (m *member) NewSession(ctx context.Context, client string) (meta.SessionInfo, error) {
	ctx, err := m.from(ctx, nil)
	if err != nil {
		return meta.SessionInfo{}, err
	}
	return m.Service.NewSession(ctx, client)
}

func (m *member) KeepAlive(ctx context.Context, session uint64) error {
	ctx, err := m.from(ctx, nil, session)
	if err != nil {
		return err
	}
	return m.Service.KeepAlive(ctx, session)
}

func (m *member) EndSession(ctx context.Context, session uint64) error {
	ctx, err := m.from(ctx, nil, session)
	if err != nil {
		return err
	}
	return m.Service.EndSession(ctx, session)
}

func (m *member) EndClient(ctx context.Context, client string) error {
	ctx, err := m.from(ctx, nil)
	if err != nil {
		return err
	}
	return m.Service.EndClient(ctx, client)
}

func (m *member) Succeed(ctx context.Context, c meta.Caller, old uint64, done bool) error {
	ctx, err := m.from(ctx, &c, old)
	if err != nil {
		return err
	}
	return m.Service.Succeed(ctx, c, old, done)
}

func (m *member) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {

	ctx, err := m.from(ctx, &c)
	if err != nil {
		return meta.Handle{}, err
	}
	return m.Service.Create(ctx, c, dir, name, f, flags)
}

func (m *member) Renew(ctx context.Context, c meta.Caller, handles []uint64) (
	[]meta.Handle, error) {

	ctx, err := m.from(ctx, &c)
	if err != nil {
		return nil, err
	}
	return m.Service.Renew(ctx, c, handles)
}

func (m *member) Beat(ctx context.Context, c meta.Caller, h meta.Host) error {
	ctx, err := m.from(ctx, &c)
	if err != nil {
		return err
	}
	return m.Service.Beat(ctx, c, h)
}

func (m *member) ListClients(ctx context.Context, c meta.Caller, after uint64, max int) (
	[]meta.Client, error) {

	ctx, err := m.from(ctx, &c)
	if err != nil {
		return nil, err
	}
	return m.Service.ListClients(ctx, c, after, max)
}
