package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// serversMax bounds the I/O servers of a cluster.
const serversMax = 4096

// servers is the table of I/O servers, as their last Join left it.
type servers struct {
	mu   sync.Mutex
	byID map[uint32]*joined
	ids  []uint32 // of byID, sorted
}

// joined is a server and when it was heard of by the clock that is not set; LastSeen is for people.
type joined struct {
	server
	heard time.Time
}

// set takes in a server.
func (x *servers) set(s *joined) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byID[s.ID] == nil {
		i, _ := slices.BinarySearch(x.ids, s.ID)
		x.ids = slices.Insert(x.ids, i, s.ID)
	}
	x.byID[s.ID] = s
}

// up lists the servers that were heard of since a moment, sorted.
func (x *servers) up(since time.Time) []uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	ids := make([]uint32, 0, len(x.ids))
	for _, id := range x.ids {
		if !x.byID[id].heard.Before(since) {
			ids = append(ids, id)
		}
	}
	return ids
}

// isUp tells whether a server was heard of since a moment.
func (x *servers) isUp(id uint32, since time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.byID[id]
	return s != nil && !s.heard.Before(since)
}

// Join implements meta.Cluster. A server that comes with another store under a known id is
// refused: the objects that files look for would not be there. Every Join is written down, not
// synced, so that a service that starts again knows who was up; on a full disk it does without.
func (s *Store) Join(ctx context.Context, srv meta.Server, mac [32]byte) error {
	rec := &server{Server: srv}
	err := s.checkJoin(&srv, mac)
	if err == nil {
		err = s.numbers.skip(ctx, srv.MaxFile)
	}
	if err == nil {
		rec.LastSeen = s.now().UnixNano()
		_, err = s.update(ctx, &meta.Caller{}, func(t *txn) error { return t.join(rec) })
	}
	if errs.KindOf(err) == errs.NoSpace && s.knows(&srv) {
		err = nil // it is up all the same: without it nothing could be read or removed
	}
	if err != nil {
		return errs.Wrap("meta.Join", srv.Addr, err)
	}
	s.welcome(rec)
	return nil
}

// join writes a server down.
func (t *txn) join(rec *server) error {
	key := serverKey(rec.ID)
	value, err := t.read(key)
	if err != nil {
		return err
	}
	if value != nil {
		var old server
		if err := parse(key, value, &old); err != nil {
			return err
		}
		if old.StoreID != rec.StoreID {
			return errs.Newf(errs.Exists, "meta.join", "", "server %d is known with store %x, not %x",
				rec.ID, old.StoreID, rec.StoreID)
		}
		rec.Lost = old.Lost
		if old.Life != 0 && old.Life != rec.Life {
			if err := t.lose(rec); err != nil {
				return err
			}
		}
	}
	t.kv.MakesRoom = true
	t.put(key, rec.encode())
	return nil
}

// knows tells whether a server has joined before, with the same store and in the same life.
func (s *Store) knows(srv *meta.Server) bool {
	s.servers.mu.Lock()
	defer s.servers.mu.Unlock()
	old := s.servers.byID[srv.ID]
	return old != nil && old.StoreID == srv.StoreID && old.Life == srv.Life
}

func (s *Store) checkJoin(srv *meta.Server, mac [32]byte) error {
	// The key is derived anew: nothing is kept for an id that somebody merely claims.
	if !meta.VerifyJoin(s.opt.Key.ServerKey(srv.ID), srv, mac) {
		return errs.Newf(errs.Forged, "meta.join", "", "server %d does not know its key", srv.ID)
	}
	s.servers.mu.Lock()
	_, known := s.servers.byID[srv.ID]
	n := len(s.servers.byID)
	s.servers.mu.Unlock()
	switch {
	case len(srv.Addr) > addrMax || srv.Addr == "" || srv.Total < 0 || srv.Free < 0:
		return errs.Invalid
	case !known && n >= serversMax:
		return errs.Newf(errs.NoSpace, "meta.join", "", "%d servers already", n)
	}
	return nil
}

// Servers implements meta.Cluster.
func (s *Store) Servers(context.Context) ([]meta.Server, error) {
	since := s.heardSince()
	s.servers.mu.Lock()
	defer s.servers.mu.Unlock()
	all := make([]meta.Server, len(s.servers.ids))
	for i, id := range s.servers.ids {
		all[i] = s.servers.byID[id].Server
		all[i].Up = !s.servers.byID[id].heard.Before(since)
	}
	return all, nil
}

// heardSince is the moment since which a server must have been heard of to be up.
func (s *Store) heardSince() time.Time { return s.steady().Add(-s.opt.HeartbeatMax) }

// StatFS implements meta.Cluster. Room counts on the servers that are up.
func (s *Store) StatFS(ctx context.Context, ino meta.Ino) (meta.FSStat, error) {
	var st meta.FSStat
	all, _ := s.Servers(ctx)
	for i := range all {
		if all[i].Up {
			st.Total += all[i].Total
			st.Free += all[i].Free
		}
	}
	err := s.look(func(t *txn) error {
		value, err := t.peek([]byte(keyFiles))
		st.Files = counter(value)
		if err != nil {
			return err
		}
		return t.statTree(ino, &st)
	})
	return st, errs.Wrap("meta.StatFS", "", err)
}

// Time implements meta.Cluster.
func (s *Store) Time(context.Context) (time.Time, error) { return s.steady(), nil }

// place chooses the servers of a new file: those that are up, in a row that starts elsewhere for
// each inode, so that first stripes, which are all that small files have, spread over all of
// them.
func (s *Store) place(ino meta.Ino, f *meta.NewFile) (layout.Layout, error) {
	fail := func(kind errs.Kind, format string, args ...any) (layout.Layout, error) {
		return layout.Layout{}, errs.Newf(kind, "meta.place", "", format, args...)
	}
	if f.Width < 0 || f.Width > layout.WidthMax {
		return fail(errs.Invalid, "width %d", f.Width)
	}
	all := s.servers.up(s.heardSince())
	width := f.Width
	if width == 0 {
		width = min(len(all), meta.DefaultWidth)
	}
	switch {
	case len(all) == 0:
		return fail(errs.Again, "no I/O server has joined yet, or none is up")
	case width > len(all):
		return fail(errs.Again, "%d servers are asked for, %d are up", width, len(all))
	}
	l := layout.Layout{Version: 1, Unit: f.Unit, Servers: make([]uint32, width)}
	if l.Unit == 0 {
		l.Unit = layout.UnitDefault
	}
	for i := range l.Servers {
		l.Servers[i] = all[(uint64(ino)+uint64(i))%uint64(len(all))]
	}
	return l, l.Validate()
}

// loadServers reads what the last process knew.
func (s *Store) loadServers(t *txn) error {
	var bad error
	err := t.snap.Scan([]byte{kindServer}, kv.PrefixEnd([]byte{kindServer}),
		func(key, value []byte, _ kv.Version) bool {
			v := &server{}
			if bad = parse(key, value, v); bad != nil {
				return false
			}
			v.ID = uint32(key[1])<<24 | uint32(key[2])<<16 | uint32(key[3])<<8 | uint32(key[4])
			// A time of day in the future is one of a clock that was set back since.
			ago := time.Duration(max(s.now().UnixNano()-v.LastSeen, 0))
			s.servers.set(&joined{server: *v, heard: s.steady().Add(-ago)})
			return true
		})
	if err == nil {
		err = bad
	}
	return err
}
