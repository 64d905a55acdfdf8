package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/member"
)

// serversMax bounds the I/O servers of a cluster.
const serversMax = 4096

// servers is the table of I/O servers, as their last Join left it.
type servers struct {
	mu   sync.Mutex
	byID map[uint32]*joined
	ids  []uint32 // of byID, sorted

	choice []*joined // memory of choose
}

// joined is a server and when it was heard of by the clock that is not set; LastSeen is for people.
type joined struct {
	server
	heard time.Time
	share share // of new files; see place.go
}

func (j *joined) member() member.Member {
	return member.Member{Incarnation: j.Incarnation, Start: j.Start, State: j.State, Heard: j.heard}
}

// serves tells whether requests can be expected to be answered: it was heard of since a moment, and
// has neither left nor been removed.
func (j *joined) serves(since time.Time) bool {
	return !j.heard.Before(since) && j.State != meta.StateLeaving && j.State != meta.StateGone
}

func serverBeat(s *meta.Server) member.Beat {
	return member.Beat{Incarnation: s.Incarnation, Start: s.Start, Leaving: s.Leaving}
}

// sameMap tells whether two servers say the same of what is part of the map.
func sameMap(a, b *meta.Server) bool {
	return a.Addr == b.Addr && a.StoreID == b.StoreID && a.Verifier == b.Verifier &&
		a.Life == b.Life && a.Host == b.Host && a.Version == b.Version
}

// set takes in a server, and tells whether it has another address than it had.
func (x *servers) set(s *joined) (moved bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.byID[s.ID]; old != nil {
		s.share = old.share.reported()
		moved = old.Addr != s.Addr
	} else {
		i, _ := slices.BinarySearch(x.ids, s.ID)
		x.ids = slices.Insert(x.ids, i, s.ID)
	}
	x.byID[s.ID] = s
	return moved
}

// up lists the servers that were heard of since a moment, sorted.
func (x *servers) up(since time.Time) []uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	ids := make([]uint32, 0, len(x.ids))
	for _, id := range x.ids {
		if x.byID[id].serves(since) {
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
	return s != nil && s.serves(since)
}

// beat takes in a heartbeat that changes nothing of the map; false: it does.
func (x *servers) beat(s *meta.Server, seen int64, now time.Time) (done bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.byID[s.ID]
	if old == nil {
		return false, nil
	}
	_, changed, err := old.member().Hear(serverBeat(s), now)
	if err != nil || changed || !sameMap(&old.Server, s) {
		return false, err
	}
	old.Total, old.Free, old.MaxFile = s.Total, s.Free, s.MaxFile
	old.heard, old.LastSeen, old.share = now, seen, old.share.reported()
	return true, nil
}

// at is the state of a server at a moment.
func (x *servers) at(id uint32, now time.Time, l member.Limits) (state meta.State, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.byID[id]
	if s == nil {
		return 0, false
	}
	m := s.member()
	return m.At(now, l), true
}

// due adds those whose state is another one than what was noted down, up to judgeMax.
func (x *servers) due(now time.Time, l member.Limits, list []verdict) []verdict {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range x.ids {
		j := x.byID[id]
		if m := j.member(); len(list) < judgeMax && m.Due(now, l) {
			list = append(list, verdict{id: id, was: j.State, now: m.At(now, l)})
		}
	}
	return list
}

// of lists the servers of a host that goes.
func (x *servers) of(host string) (list []verdict) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range x.ids {
		if j := x.byID[id]; j.Host == host && j.State != meta.StateGone {
			list = append(list, verdict{id: id, was: j.State, now: meta.StateGone})
		}
	}
	return list
}

func (x *servers) state(id uint32, to meta.State, at int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if j := x.byID[id]; j != nil {
		j.State, j.Since = to, at
	}
}

func (x *servers) excuse(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, j := range x.byID {
		m := j.member()
		m.Excuse(d)
		j.heard = m.Heard
	}
}

// Join implements meta.Cluster. A server that comes with another store under a known id is
// refused: the objects that files look for would not be there. What changes the map is written
// down, so that a service that starts again knows who was up; on a full disk it does without.
func (s *Store) Join(ctx context.Context, srv meta.Server, mac [32]byte) error {
	peer := meta.PeerOf(ctx)
	err := s.checkJoin(&srv, mac)
	if err == nil && peer != (meta.Peer{}) {
		err = s.checkOwner(ctx, peer, srv.ID)
	}
	if err == nil {
		err = s.numbers.skip(ctx, srv.MaxFile)
	}
	if err == nil {
		err = s.join(ctx, peer, &srv)
	}
	if err != nil {
		s.owners.refused(peer, srv.ID, err)
	}
	return errs.Wrap("meta.Join", srv.Addr, err)
}

func (s *Store) join(ctx context.Context, peer meta.Peer, srv *meta.Server) error {
	at := s.now().UnixNano()
	var done bool
	var err error
	if s.owners.speaks(peer, srv) {
		if done, err = s.servers.beat(srv, at, s.steady()); err != nil {
			return err
		}
	}
	if done {
		if s.backlogs.has(srv.ID) {
			wake(s.removed)
		}
		return nil
	}
	rec := &server{Server: *srv}
	err = s.changeMap(ctx, func(t *txn) error {
		host, err := t.hostOf(peer, srv.Host)
		if err == nil {
			rec.Host, err = host, t.claim(peer, s.opt.Host, host, srv.ID)
		}
		if err == nil {
			err = t.join(rec, at)
		}
		return err
	}, func() { s.welcome(rec) })
	if errs.KindOf(err) == errs.NoSpace && s.knows(srv) {
		err = nil // it is up all the same: without it nothing could be read or removed
		s.welcome(rec)
	}
	if err != nil {
		return err
	}
	if rec.Host != "" {
		s.owners.set(rec.Host, rec.ID)
	}
	s.opt.Log.Info("an I/O server joins", "server", srv.ID, "state", rec.State, "addr", srv.Addr,
		"start", srv.Incarnation, "host", rec.Host)
	s.noteVersion("I/O server", fmt.Sprintf("iod%d", srv.ID), srv.Version)
	return nil
}

// join writes a server down.
func (t *txn) join(rec *server, at int64) error {
	key := serverKey(rec.ID)
	value, err := t.read(key)
	if err != nil {
		return err
	}
	var old server
	if value != nil {
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
	if err := t.mayServe(rec.Host); err != nil {
		return err
	}
	m := member.Member{Incarnation: old.Incarnation, Start: old.Start, State: old.State}
	m, changed, err := m.Hear(serverBeat(&rec.Server), time.Time{})
	if err != nil {
		return err
	}
	rec.State, rec.Since, rec.LastSeen = m.State, old.Since, at
	if changed {
		rec.Since = at
	}
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
	if !meta.VerifyJoinBy(s.keys.Ring(), srv, mac) {
		return errs.Newf(errs.Forged, "meta.join", "", "server %d does not know its key", srv.ID)
	}
	s.servers.mu.Lock()
	_, known := s.servers.byID[srv.ID]
	n := len(s.servers.byID)
	s.servers.mu.Unlock()
	switch {
	case len(srv.Addr) > addrMax || srv.Addr == "" || srv.Total < 0 || srv.Free < 0 ||
		len(srv.Host) > identity.NameMax:
		return errs.Invalid
	case len(srv.Host) > identity.NameMax || len(srv.Version) > meta.VersionMax:
		return errs.Invalid
	case !known && n >= serversMax:
		return errs.Newf(errs.NoSpace, "meta.join", "", "%d servers already", n)
	}
	return nil
}

// Servers implements meta.Cluster.
func (s *Store) Servers(context.Context) ([]meta.Server, error) {
	now, l := s.steady(), s.limits()
	s.servers.mu.Lock()
	defer s.servers.mu.Unlock()
	all := make([]meta.Server, len(s.servers.ids))
	for i, id := range s.servers.ids {
		j := s.servers.byID[id]
		m := j.member()
		all[i] = j.Server
		if all[i].State = m.At(now, l); all[i].State != j.State {
			all[i].Since = s.now().UnixNano() // it is noted down in a moment
		}
		all[i].Up = all[i].State.Serves()
		s.owners.tell(&all[i])
	}
	return all, nil
}

// heardSince is the moment since which a server must have been heard of to be up.
func (s *Store) heardSince() time.Time { return s.steady().Add(-s.opt.HeartbeatMax) }

// StatFS implements meta.Cluster. Room counts on the servers that are up.
func (s *Store) StatFS(_ context.Context, ino meta.Ino) (meta.FSStat, error) {
	var st meta.FSStat
	err := s.look(func(t *txn) error {
		value, err := t.peek([]byte(keyFiles))
		if err != nil {
			return err
		}
		n, err := t.inode(ino)
		switch errs.KindOf(err) {
		case errs.OK:
			st.Total, st.Free = s.servers.room(s.heardSince(), s.pools.get(n.Policy.Pool))
			st.Files = counter(value)
			return t.statTree(n, &st)
		case errs.NotFound:
			st.Total, st.Free = s.servers.room(s.heardSince(), nil)
			st.Files = counter(value)
			return nil
		}
		return err
	})
	return st, errs.Wrap("meta.StatFS", "", err)
}

// Time implements meta.Cluster.
func (s *Store) Time(context.Context) (time.Time, error) { return s.steady(), nil }

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
			j := &joined{server: *v}
			j.heard = member.Loaded(j.member(), s.steady()).Heard
			s.servers.set(j)
			return true
		})
	if err == nil {
		err = bad
	}
	return err
}
