package store

import (
	"cmp"
	"slices"
)

// Client is a session as it is shown to people.
type Client struct {
	Session uint64
	Name    string // that it gave itself
	Open    int    // files
}

// Clients lists the sessions that have not ended, those with most open files first.
func (s *Store) Clients() []Client {
	all := s.sessions.clients()
	slices.SortFunc(all, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.Open, a.Open), cmp.Compare(a.Session, b.Session))
	})
	return all
}

func (x *sessions) clients() []Client {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]Client, 0, len(x.byID))
	for id, a := range x.byID {
		if !a.ending {
			all = append(all, Client{Session: id, Name: a.client, Open: a.handles})
		}
	}
	return all
}
