package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// Client is a session as it is shown to people.
type Client struct {
	Session uint64
	Name    string // that it gave itself
	Open    int    // files
}

// introduce takes note of what a client says of itself. It says it again in each life of the
// service.
func (s *Store) introduce(l *meta.Listening) {
	about := *l.About
	about.Version = about.Version[:min(len(about.Version), meta.VersionMax)]
	about.Mount = about.Mount[:min(len(about.Mount), meta.MountMax)]
	s.sessions.mu.Lock()
	a := s.sessions.byID[l.Session]
	name := ""
	if a != nil {
		a.about, name = about, a.client
	}
	s.sessions.mu.Unlock()
	s.noteVersion("client", name, about.Version)
}

// Clients lists the sessions that have not ended, those with most open files first.
func (s *Store) Clients() []Client {
	var all []Client
	for _, c := range s.sessions.clients(s.steady(), s.now().UnixNano()) {
		all = append(all, Client{Session: c.Session, Name: c.Name, Open: c.Open})
	}
	slices.SortFunc(all, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.Open, a.Open), cmp.Compare(a.Session, b.Session))
	})
	return all
}

// clients lists the sessions that have not ended. steady and now are this moment by both clocks.
func (x *sessions) clients(steady time.Time, now int64) []meta.Client {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]meta.Client, 0, len(x.byID))
	for id, a := range x.byID {
		if !a.ending {
			all = append(all, meta.Client{Session: id, Name: a.client, Open: a.handles, Since: a.began,
				About: a.about, Peer: a.peer, LastSeen: now - int64(steady.Sub(a.seen))})
		}
	}
	return all
}

// ListClients implements meta.Membership.
func (s *Store) ListClients(_ context.Context, c meta.Caller, after uint64, max int) (
	[]meta.Client, error) {

	const op = "meta.ListClients"
	if max <= 0 {
		return nil, errs.Newf(errs.Invalid, op, "", "a page of %d", max)
	}
	only := c.Peer // what it has told itself is kept from nobody
	if c.Peer.Kind != identity.Client {
		err := s.registryLook(op, &c, func(*txn) error { return nil })
		switch {
		case err == nil:
			only = meta.Peer{}
		case errs.KindOf(err) != errs.Perm || only == (meta.Peer{}):
			return nil, err
		}
	}
	page := slices.DeleteFunc(s.sessions.clients(s.steady(), s.now().UnixNano()),
		func(one meta.Client) bool {
			return one.Session <= after || only != (meta.Peer{}) && one.Peer != only
		})
	slices.SortFunc(page, func(a, b meta.Client) int { return cmp.Compare(a.Session, b.Session) })
	return page[:min(len(page), max, meta.ClientPageMax)], nil
}
