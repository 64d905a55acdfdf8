package nbd

import (
	"context"
	"errors"

	"github.com/sluice-storage/sluice/errs"
)

// table is what is offered at one moment. It is replaced as a whole; entries that stay are in both
// tables.
type table struct {
	list   []*shared
	byName map[string]*shared
}

func newTable(cfg Config, entries []Entry) (*table, error) {
	t := &table{byName: make(map[string]*shared)}
	for _, e := range entries {
		if err := e.validate(); err != nil {
			return nil, err
		}
		if cfg.TLS == nil && (e.TLSOnly || len(e.Allow) > 0) {
			return nil, errs.Newf(errs.Invalid, "nbd.Entry", e.Name, "needs TLS to know who comes")
		}
		if _, taken := t.byName[e.Name]; taken {
			return nil, errs.Newf(errs.Exists, "nbd.Entry", e.Name, "two entries of one name")
		}
		sh := newShared(e, cfg)
		t.list = append(t.list, sh)
		t.byName[e.Name] = sh
	}
	return t, nil
}

// find resolves a name; the empty one is the default export.
func (s *Server) find(name string) *shared {
	t := s.offers.Load()
	if sh, ok := t.byName[name]; ok {
		return sh
	}
	if name == "" && len(t.list) > 0 {
		return t.list[0]
	}
	return nil
}

// Try opens an export once, as a client's choice of it does, and lets go of it again: one that is
// kept stays open. It is for telling a mistake before a client meets it.
func (s *Server) Try(ctx context.Context, name string) error {
	sh := s.find(name)
	if sh == nil {
		return errs.New(errs.NotFound, "nbd.Try", name, nil)
	}
	if _, err := sh.acquire(ctx); err != nil {
		return err
	}
	return sh.release()
}

// SetEntries changes what is offered. Entries whose name and key stay the same stay as they are,
// with their connections. Connections of all others are drained as in Shutdown, and their exports
// closed; SetEntries waits for that, until ctx ends. A client that chooses a new entry meanwhile
// waits as well, because it may be made of the same device. added are the names of the entries that
// are new or changed.
func (s *Server) SetEntries(ctx context.Context, entries ...Entry) (added []string, err error) {
	next, err := newTable(s.cfg, entries)
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	defer close(over)
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		return nil, errs.New(errs.Shutdown, "nbd.SetEntries", "", nil)
	}
	gone, added := next.takeOver(s.offers.Load(), over)
	s.offers.Store(next)
	s.mu.Unlock()
	var failed []error
	for _, sh := range gone {
		failed = append(failed, sh.retire())
	}
	for _, sh := range gone {
		select {
		case <-sh.closed:
		case <-ctx.Done():
			failed = append(failed, errs.Wrap("nbd.SetEntries", sh.entry.Name, ctx.Err()))
		}
	}
	return added, errors.Join(failed...)
}

// takeOver moves entries that stay into the table. The others wait for over.
func (t *table) takeOver(old *table, over <-chan struct{}) (gone []*shared, added []string) {
	for i, sh := range t.list {
		was := old.byName[sh.entry.Name]
		if was != nil && was.entry.Key != "" && was.entry.Key == sh.entry.Key {
			t.list[i], t.byName[sh.entry.Name] = was, was
			continue
		}
		sh.after = over
		added = append(added, sh.entry.Name)
	}
	for _, was := range old.list {
		if t.byName[was.entry.Name] != was {
			gone = append(gone, was)
		}
	}
	return gone, added
}

// awaitPrior waits until what the entry replaces is closed.
func (s *shared) awaitPrior(ctx context.Context) error {
	if s.after == nil {
		return nil
	}
	select {
	case <-s.after:
		return nil
	case <-ctx.Done():
		return errs.Wrap("nbd.Open", s.entry.Name, ctx.Err())
	}
}

// join counts a connection in that has chosen the export; false if the export is retired.
func (s *shared) join(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[c] = struct{}{}
	return !s.retired
}

// part counts a connection out that has ended.
func (s *shared) part(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.users, c)
	c.count.addTo(&s.gone)
}

// retire ends the use of an export that is not offered any more.
func (s *shared) retire() error {
	s.mu.Lock()
	s.retired, s.keep = true, false
	users := make([]*conn, 0, len(s.users))
	for c := range s.users {
		users = append(users, c)
	}
	s.mu.Unlock()
	for _, c := range users {
		c.drain()
	}
	return s.letGo()
}

// checkClosedLocked tells those who wait for the end of a retired export.
func (s *shared) checkClosedLocked() {
	if s.retired && s.open == nil && s.busy == nil {
		select {
		case <-s.closed:
		default:
			close(s.closed)
		}
	}
}
