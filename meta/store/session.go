package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// alive is what the process knows of a session beside its record: it starts anew with the process.
type alive struct {
	seen    time.Time
	handles int
	ending  bool
	client  string    // the name that it gave itself
	working bool      // ending: a goroutine is at it
	until   time.Time // ending: when the last of its capabilities has run out
	locks   bool      // its record says that it has asked for locks
	heard   bool      // it was heard of in this life of the service
}

// sessions is the table of sessions. The records in the store are the truth about which exist.
type sessions struct {
	mu       sync.Mutex
	byID     map[uint64]*alive
	byClient map[string][]uint64 // ids of byID; at most ofClientMax each, but for those without a name
	living   int                 // of byID, those that are not ending
	handles  int                 // of all
}

func stale(id uint64) error {
	return errs.Newf(errs.Stale, "meta.session", "", "session %x has ended", id)
}

// add takes in a session.
func (x *sessions) add(id uint64, a *alive) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID[id] = a
	x.byClient[a.client] = append(x.byClient[a.client], id)
	if !a.ending {
		x.living++
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

// opened counts handles that are there, whatever the limits are by now.
func (x *sessions) opened(id uint64, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil {
		a.handles += n
		x.handles += n
	}
}

// room tells whether there may be another session, for this client and at all.
func (x *sessions) room(client string, limit int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.byID); n >= limit {
		return errs.Newf(errs.Again, "meta.sessions", "", "there are %d sessions already", n)
	}
	if n := len(x.byClient[client]); n >= ofClientMax && client != "" {
		return errs.Newf(errs.Again, "meta.sessions", "", "the client has %d sessions already", n)
	}
	return nil
}

// of lists the sessions of a client, if all of them began their lease before the given time; errs.
// Again otherwise.
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
	if a == nil || a.ending || !a.seen.Before(before) {
		return false
	}
	a.ending, a.until = true, clock().Add(valid)
	x.living--
	return true
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
		delete(x.byID, id)
		rest := slices.DeleteFunc(x.byClient[a.client], func(other uint64) bool { return other == id })
		if x.byClient[a.client] = rest; len(rest) == 0 {
			delete(x.byClient, a.client)
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
	if a := x.byID[id]; a != nil && a.seen.Before(before) {
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

// session reads a session's record; a zero one if there is none.
func (t *txn) session(id uint64) (rec session, err error) {
	key := sessionKey(id)
	value, err := t.read(key)
	if err == nil && value != nil {
		err = parse(key, value, &rec)
	}
	return rec, err
}

// live demands that a session is there until the commit.
func (t *txn) live(id uint64) error {
	rec, err := t.session(id)
	if err != nil {
		return err
	}
	if rec.State != sessionLive {
		return stale(id)
	}
	return nil
}

// NewSession implements meta.Sessions. Ids are random, so that nobody guesses another's.
func (s *Store) NewSession(ctx context.Context, client string) (meta.SessionInfo, error) {
	fail := func(err error) (meta.SessionInfo, error) {
		return meta.SessionInfo{}, errs.Wrap("meta.NewSession", client, err)
	}
	if len(client) > clientMax {
		return fail(errs.NameTooLong)
	}
	if err := s.sessions.room(client, s.opt.SessionsMax); err != nil {
		return fail(err)
	}
	var id uint64
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
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
		t.put(key, (&session{State: sessionLive, Created: t.now, Client: client}).encode())
		return nil
	})
	if err != nil {
		return fail(err)
	}
	s.sessions.add(id, &alive{seen: s.steady(), client: client})
	return meta.SessionInfo{
		ID: id, LeaseMs: uint32(s.opt.Lease.Milliseconds()), ClusterID: s.cluster,
	}, nil
}

// KeepAlive implements meta.Sessions.
func (s *Store) KeepAlive(_ context.Context, session uint64) error {
	return errs.Wrap("meta.KeepAlive", "", s.sessions.touch(session, s.steady()))
}

// EndSession implements meta.Sessions. What is unknown has ended. Files that cannot be measured at
// once, and handles beyond some pages of them, are closed later, in the background.
func (s *Store) EndSession(ctx context.Context, session uint64) error {
	err := s.endSession(ctx, session, s.steady().Add(time.Nanosecond))
	return errs.Wrap("meta.EndSession", "", err)
}

// endSession is EndSession, unless the session was heard of at or after the given time.
func (s *Store) endSession(ctx context.Context, session uint64, before time.Time) error {
	if err := s.beginEnd(ctx, session, sessionEnded, before); err != nil {
		return err
	}
	if err := s.finishEnd(ctx, session, pagesMax); err != nil {
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
	ids, err := s.sessions.of(client, before)
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
// heard of at or after the given time.
func (s *Store) beginEnd(ctx context.Context, id uint64, state uint8, before time.Time) error {
	var valid time.Duration
	if state == sessionDead {
		valid = s.opt.CapTTL
	}
	if !s.sessions.end(id, before, s.steady, valid) {
		return nil
	}
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

// finishEnd closes the handles of a session that is ending, as many as can be, and forgets it when
// none is left. It closes nothing before the session's last capability has run out: until then it
// may write, so that its files count as being written, and read, so that the objects of a file
// without a name must stay. It stops after some pages of handles, with errs.Again.
func (s *Store) finishEnd(ctx context.Context, id uint64, pages int) error {
	if s.sessions.mayAct(id, s.steady()) {
		return errs.Newf(errs.Again, "meta.session", "", "its capabilities have not run out")
	}
	s.locks.End(id)
	if err := s.closeAll(ctx, id, pages); err != nil {
		return err
	}
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		t.kv.MakesRoom = true
		t.demandNone(handlesOf(id))
		t.remove(sessionKey(id))
		return nil
	})
	if err == nil {
		s.sessions.forget(id)
		s.locks.End(id) // what was granted in between: see stillThere
	}
	return err
}

// openHandle is a handle with its id.
type openHandle struct {
	id uint64
	handle
}

// closeAll closes what can be closed of a session's handles. It begins elsewhere each time, so
// that files whose servers are away do not stand before the others for ever.
func (s *Store) closeAll(ctx context.Context, session uint64, pages int) error {
	middle := handleKey(session, mathrand.Uint64())
	c := closer{s: s, caller: meta.Caller{Session: session}, pages: pages}
	c.closeIn(ctx, middle, kv.PrefixEnd(handlesOf(session)))
	c.closeIn(ctx, handlesOf(session), middle)
	return c.failed
}

// closer closes the handles of a session whose owner is gone.
type closer struct {
	s        *Store
	caller   meta.Caller
	pages    int // that it may still read
	failures int
	failed   error
}

// closeIn closes the handles in a range of keys, a page at a time.
func (c *closer) closeIn(ctx context.Context, start, end []byte) {
	for c.failures < failuresMax {
		if c.pages == 0 {
			c.failed = errs.Newf(errs.Again, "meta.session", "", "it has many handles")
			return
		}
		c.pages--
		page, err := c.s.handlePage(start, end)
		if err != nil {
			c.failed, c.failures = err, failuresMax
			return
		}
		for _, o := range page {
			if c.failures < failuresMax {
				c.close(ctx, o)
			}
		}
		if len(page) < batchMax {
			return
		}
		start = append(handleKey(c.caller.Session, page[len(page)-1].id), 0)
	}
}

func (c *closer) close(ctx context.Context, o openHandle) {
	c.caller.Cred.UID = o.UID
	err := c.s.closeDead(ctx, &c.caller, o.id, o.handle)
	if err != nil && errs.KindOf(err) != errs.Closed {
		c.failed = err
		c.failures++
	}
}

// handlePage reads handles by their keys.
func (s *Store) handlePage(start, end []byte) (page []openHandle, err error) {
	err = s.look(func(t *txn) error {
		return t.snap.Scan(start, end, func(key, value []byte, _ kv.Version) bool {
			o := openHandle{id: number(key, 1)}
			if err := parse(key, value, &o.handle); err != nil {
				s.opt.Log.Error("unreadable handle", "session", number(key, 0), "error", err)
			}
			page = append(page, o)
			return len(page) < batchMax
		})
	})
	return page, err
}

// closeDead closes a handle whose owner cannot say any more what it wrote.
func (s *Store) closeDead(ctx context.Context, c *meta.Caller, id uint64, h handle) error {
	if !h.writes() {
		return s.closeHandle(ctx, c, id, closing{})
	}
	a, err := s.exactAttr(ctx, h.Ino)
	if err != nil && errs.KindOf(err) != errs.NotFound {
		return err
	}
	return s.closeHandle(ctx, c, id, closing{
		dirty: true, measured: true, size: a.Size, truncSeq: a.TruncSeq, mtime: s.now(),
	})
}
