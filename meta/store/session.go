package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// takenMax is how many handles that must not be opened any more a session remembers: more than
// requests can be on their way.
const takenMax = 1024

// alive is what the process knows of a session beside its record: it starts anew with the process.
type alive struct {
	seen    time.Time
	handles int // that are open, or about to be
	ending  bool
	client  string     // the name that it gave itself
	peer    meta.Peer  // the member that has opened it; zero: somebody of this host
	began   int64      // in Unix nanoseconds, for people
	about   meta.About // likewise
	working bool       // ending: a goroutine is at it
	until   time.Time  // ending: when the last of its capabilities has run out

	open      map[uint64]*handle
	taken     map[uint64]bool // handles that are closed, or whose openings were taken back
	tookBack  []uint64        // the same, in order
	earlier   bool            // it began before the process, and has neither claimed nor ended
	unclaimed bool            // earlier, and may claim
	listens   bool            // it may have leases; see listen.go
	awaited   bool            // earlier, and may have leases
	locks     bool            // its record says that it has asked for locks
	heard     bool            // it was heard of in this life of the service
	spans     []span          // numbers that are its own; see spans.go
}

// sessions is the table of sessions and of what they have open. The records in the store are the
// truth about which sessions exist; what is open is known here only: see handles.go.
type sessions struct {
	mu        sync.Mutex
	byID      map[uint64]*alive
	byClient  map[string][]uint64 // ids of byID by clientKey; at most ofClientMax of one
	living    int                 // of byID, those that are not ending
	handles   int                 // of all
	unsettled int                 // of byID, those that are earlier
	inodes    map[meta.Ino]*opens
	nameless  map[meta.Ino]*opens // of inodes, the orphans

	// The grace time after a start: see grace.go.
	awaited int           // of byID, those that are earlier and may hold leases
	calm    chan struct{} // closed when it is over
	isCalm  atomic.Bool
}

func stale(id uint64) error {
	return errs.Newf(errs.Stale, "meta.session", "", "session %x has ended", id)
}

// add takes in a session.
func (x *sessions) add(id uint64, a *alive) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID[id] = a
	key := clientKey(a.peer, a.client)
	x.byClient[key] = append(x.byClient[key], id)
	if !a.ending {
		x.living++
	}
	if a.earlier {
		x.unsettled++
		if a.awaited = a.listens; a.awaited {
			x.awaited++
		}
	}
}

// settleLocked notes that a session of the last process has said what it has open, or has ended.
func (x *sessions) settleLocked(a *alive) {
	a.unclaimed = false
	if a.earlier {
		a.earlier = false
		x.unsettled--
		if a.awaited {
			a.awaited = false
			x.awaited--
		}
		x.calmLocked(false)
	}
}

// touch renews a lease; errs.Stale when there is no such session any more.
func (x *sessions) touch(id uint64, now time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	if a == nil || a.ending {
		return stale(id)
	}
	a.seen, a.heard = now, true
	return nil
}

// expiry is when a capability that is signed now runs out; errs.Stale when the session is ending.
// The clock is read under the lock that end takes: so whatever was signed before has run out by the
// time that end notes down, however long the signer is kept waiting. An unknown session is not its
// business.
func (x *sessions) expiry(id uint64, clock func() time.Time, ttl time.Duration) (
	time.Time, error) {

	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil && a.ending {
		return time.Time{}, stale(id)
	}
	return clock().Add(ttl), nil
}

// reserve counts one handle more, unless the session or all together have too many. An unknown
// session is not its business.
func (x *sessions) reserve(id uint64, limit, limitAll int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	if a == nil {
		return nil
	}
	switch {
	case a.handles >= limit:
		return errs.Newf(errs.TooManyOpen, "meta.handles", "", "the client has %d files open", a.handles)
	case x.handles >= limitAll:
		return errs.Newf(errs.TooManyOpen, "meta.handles", "", "all clients have %d files open",
			x.handles)
	}
	a.handles++
	x.handles++
	return nil
}

// room tells whether there may be another session, for this client, by its key, and at all.
func (x *sessions) room(client string, limit int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.byID); n >= limit {
		return errs.Newf(errs.Again, "meta.sessions", "", "there are %d sessions already", n)
	}
	// Who is of this host need not have a name.
	if n := len(x.byClient[client]); n >= ofClientMax && client != "" {
		return errs.Newf(errs.Again, "meta.sessions", "", "the client has %d sessions already", n)
	}
	return nil
}

// of lists the sessions of a client, by its key, if all of them began their lease before the given
// time; errs.Again otherwise.
func (x *sessions) of(client string, before time.Time) ([]uint64, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range x.byClient[client] {
		if !x.byID[id].seen.Before(before) {
			return nil, errs.Newf(errs.Again, "meta.session", "",
				"it was heard of a moment ago, and must be silent for longer to be dead")
		}
	}
	return slices.Clone(x.byClient[client]), nil
}

func (x *sessions) release(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil {
		a.handles--
		x.handles--
	}
}

func (x *sessions) count() (living, ending, handles int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.living, len(x.byID) - x.living, x.handles
}

// end marks a session whose lease began before the given time; false if it is unknown, marked
// already or was heard of since. After valid its capabilities have run out.
func (x *sessions) end(id uint64, before time.Time, clock func() time.Time,
	valid time.Duration) bool {

	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	if a == nil || a.ending || !a.silent(before) {
		return false
	}
	a.ending, a.until = true, clock().Add(valid)
	x.living--
	return true
}

// silent tells whether a session was not heard of at or after a moment; zero: it does not matter.
func (a *alive) silent(before time.Time) bool { return before.IsZero() || a.seen.Before(before) }

// ends tells whether a session is ending, or has ended.
func (x *sessions) ends(id uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	return a == nil || a.ending
}

// revive takes the mark back when it could not be written down.
func (x *sessions) revive(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil && a.ending {
		a.ending = false
		x.living++
	}
}

// forget ends the bookkeeping of a session that is ending.
func (x *sessions) forget(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil {
		x.handles -= a.handles
		x.settleLocked(a)
		delete(x.byID, id)
		key := clientKey(a.peer, a.client)
		rest := slices.DeleteFunc(x.byClient[key], func(other uint64) bool { return other == id })
		if x.byClient[key] = rest; len(rest) == 0 {
			delete(x.byClient, key)
		}
	}
}

// restart lets all leases begin anew.
func (x *sessions) restart(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range x.byID {
		a.seen = now
	}
}

// pick lists the sessions for which want is true, at most max.
func (x *sessions) pick(max int, want func(a *alive) bool) (ids []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, a := range x.byID {
		if want(a) {
			ids = append(ids, id)
		}
		if len(ids) == max {
			break
		}
	}
	return ids
}

// work notes that somebody brings the session to its end, or stopped doing so.
func (x *sessions) work(id uint64, on bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil {
		a.working = on
	}
}

// silence notes that a session can show no capability any more, unless it was heard of at or after
// the given time.
func (x *sessions) silence(id uint64, before time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil && a.silent(before) {
		a.until = time.Time{}
	}
}

// mayAct tells whether a session that ends can still show a capability to an I/O server.
func (x *sessions) mayAct(id uint64, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	return a != nil && now.Before(a.until)
}

// NewSession implements meta.Sessions. Ids are random, so that nobody guesses another's.
func (s *Store) NewSession(ctx context.Context, client string) (meta.SessionInfo, error) {
	fail := func(err error) (meta.SessionInfo, error) {
		return meta.SessionInfo{}, errs.Wrap("meta.NewSession", client, err)
	}
	if len(client) > clientMax {
		return fail(errs.NameTooLong)
	}
	peer := meta.PeerOf(ctx)
	if err := s.sessions.room(clientKey(peer, client), s.opt.SessionsMax); err != nil {
		return fail(err)
	}
	var id uint64
	var began int64
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		if err := t.mayBegin(peer); err != nil {
			return err
		}
		var b [8]byte
		rand.Read(b[:])
		id = binary.BigEndian.Uint64(b[:])
		key := sessionKey(id)
		old, err := t.read(key)
		if err != nil {
			return err
		}
		if id == 0 || old != nil {
			return errs.Again
		}
		t.kv.MakesRoom = true // nobody removes anything without one
		began = t.now.UnixNano()
		t.put(key, (&session{State: sessionLive, Created: began, Client: client,
			Peer: peer}).encode())
		return nil
	})
	if err != nil {
		return fail(err)
	}
	s.sessions.add(id, &alive{seen: s.steady(), client: client, peer: peer, began: began})
	if s.banned.has(peer) { // it was removed a moment ago
		s.endBanned(ctx)
	}
	return meta.SessionInfo{
		ID: id, LeaseMs: uint32(s.opt.Lease.Milliseconds()), ClusterID: s.cluster, Life: s.life,
		LeaseTimeMs: uint32(s.opt.LeaseTime.Milliseconds()), Epoch: s.leases.First(),
	}, nil
}

// markSession sets a mark in the record of a living session, for the next life of the service.
func (s *Store) markSession(ctx context.Context, id uint64, mark func(*session) *bool) error {
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		key := sessionKey(id)
		value, err := t.read(key)
		if err != nil {
			return err
		}
		var rec session
		if value != nil {
			err = parse(key, value, &rec)
		}
		switch {
		case err != nil:
			return err
		case rec.State != sessionLive:
			return stale(id)
		case *mark(&rec):
			return errNothing
		}
		*mark(&rec) = true
		t.kv.MakesRoom = true // nobody could lock or know what it is about to cut
		t.put(key, rec.encode())
		return nil
	})
	return err
}

// KeepAlive implements meta.Sessions.
func (s *Store) KeepAlive(_ context.Context, session uint64) error {
	return errs.Wrap("meta.KeepAlive", "", s.sessions.touch(session, s.steady()))
}

// EndSession implements meta.Sessions. What is unknown has ended. Requests of the session that come
// at the same time do not keep it alive.
func (s *Store) EndSession(ctx context.Context, session uint64) error {
	return errs.Wrap("meta.EndSession", "", s.endSession(ctx, session, time.Time{}))
}

// endSession is EndSession, unless the session was heard of at or after the given time: then it is
// errs.Again, and the session goes on.
func (s *Store) endSession(ctx context.Context, session uint64, before time.Time) error {
	if err := s.beginEnd(ctx, session, sessionEnded, before); err != nil {
		return err
	}
	if !s.sessions.ends(session) {
		return errs.Newf(errs.Again, "meta.session", "", "its client lives")
	}
	if err := s.finishEnd(ctx, session); err != nil {
		s.opt.Log.Info("session ends later", "session", session, "error", err)
		wake(s.swept)
	}
	return nil
}

// EndClient implements meta.Sessions. A session that is ending already does not wait any longer.
//
// The caller's word alone ends nobody's session. Where the service can look whether the client's
// process is dead it does so itself. Elsewhere the client must have been silent for half of its
// lease: a living one is heard of three times in a lease. Until then the answer is errs.Again.
func (s *Store) EndClient(ctx context.Context, client string) error {
	dead, known := s.opt.Dead(client)
	before := s.steady().Add(time.Nanosecond)
	switch {
	case client == "":
		return errs.Newf(errs.Invalid, "meta.EndClient", "", "a client without a name")
	case known && !dead:
		return errs.Newf(errs.Perm, "meta.EndClient", client, "its process lives")
	case !known:
		before = before.Add(-s.opt.Lease / 2)
	}
	ids, err := s.sessions.of(clientKey(meta.PeerOf(ctx), client), before)
	for _, id := range ids {
		if err == nil {
			s.sessions.silence(id, before)
			err = s.endSession(ctx, id, before)
		}
	}
	return errs.Wrap("meta.EndClient", client, err)
}

// Sync implements meta.Sessions.
func (s *Store) Sync(ctx context.Context) error {
	return errs.Wrap("meta.Sync", "", s.kv.Sync(ctx))
}

// beginEnd marks a session as ending in the store, after which it opens nothing more, unless it was
// heard of at or after the given time; zero: that does not matter.
func (s *Store) beginEnd(ctx context.Context, id uint64, state uint8, before time.Time) error {
	var valid time.Duration
	if state == sessionDead {
		valid = s.opt.CapTTL
	}
	if !s.sessions.end(id, before, s.steady, valid) {
		return nil
	}
	s.leases.Leave(id)
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		key := sessionKey(id)
		value, err := t.read(key)
		if err != nil || value == nil {
			return unlessNil(err, errNothing)
		}
		var rec session
		if err := parse(key, value, &rec); err != nil {
			return err
		}
		rec.State = state
		t.kv.MakesRoom = true
		t.put(key, rec.encode())
		return nil
	})
	if err != nil {
		s.sessions.revive(id)
	} else {
		s.locks.Stop(id)
	}
	return err
}

// finishEnd closes the handles of a session that is ending, and forgets it. It closes nothing
// before the session's last capability has run out: until then it may write, so that its files
// count as being written, and read, so that the objects of a file without a name must stay. Files
// that it had open for writing keep flagWriters: the next one who looks at them measures them
// (repair.go).
func (s *Store) finishEnd(ctx context.Context, id uint64) error {
	if s.sessions.mayAct(id, s.steady()) {
		return errs.Newf(errs.Again, "meta.session", "", "its capabilities have not run out")
	}
	s.locks.End(id)
	for {
		some := s.sessions.some(id, batchMax)
		if len(some) == 0 {
			break
		}
		for _, h := range some {
			if _, destroy := s.sessions.close(h); destroy {
				s.endOrphan(ctx, h.ino)
			}
			if n, _ := s.sessions.writers(h.ino); h.writes() && n == 0 {
				s.leases.Forget(h.ino) // whoever writes next finds that its writers are gone
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		t.kv.MakesRoom = true
		t.remove(sessionKey(id))
		return nil
	})
	if err == nil {
		s.sessions.forget(id)
		wake(s.swept)   // its orphans, and those that had to wait for it
		s.locks.End(id) // what was granted in between: see stillThere
	}
	return err
}
