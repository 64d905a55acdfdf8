package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// alive is what the process knows of a session beside its record: it starts anew with the process.
type alive struct {
	seen    time.Time
	handles int
	ending  bool
	working bool      // ending: a goroutine is at it
	writes  time.Time // ending: when the last of its capabilities has run out
}

// sessions is the table of sessions. The records in the store are the truth about which exist.
type sessions struct {
	mu   sync.Mutex
	byID map[uint64]*alive
}

// touch renews a lease; errs.Stale when there is no such session any more.
func (x *sessions) touch(id uint64, now time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	if a == nil || a.ending {
		return errs.Newf(errs.Stale, "meta.session", "", "session %x has ended", id)
	}
	a.seen = now
	return nil
}

// reserve counts one handle more, unless there are too many. An unknown session is not its
// business.
func (x *sessions) reserve(id uint64, limit int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	if a == nil {
		return true
	}
	if a.handles >= limit {
		return false
	}
	a.handles++
	return true
}

func (x *sessions) release(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil {
		a.handles--
	}
}

func (x *sessions) count() (living, handles int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range x.byID {
		handles += a.handles
		if !a.ending {
			living++
		}
	}
	return living, handles
}

// end marks a session; false if it is unknown or marked already.
func (x *sessions) end(id uint64, writes time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	if a == nil || a.ending {
		return false
	}
	a.ending, a.writes = true, writes
	return true
}

// revive takes the mark back when it could not be written down.
func (x *sessions) revive(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil {
		a.ending = false
	}
}

func (x *sessions) forget(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byID, id)
}

// pick lists the sessions for which want is true.
func (x *sessions) pick(want func(a *alive) bool) (ids []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, a := range x.byID {
		if want(a) {
			ids = append(ids, id)
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

// silence notes that a session has no write on its way any more.
func (x *sessions) silence(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil {
		a.writes = time.Time{}
	}
}

// mayWrite tells whether a session that ends can still have a write on its way.
func (x *sessions) mayWrite(id uint64, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	return a != nil && now.Before(a.writes)
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
		return errs.Newf(errs.Stale, "meta.session", "", "session %x has ended", id)
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
	if n, _ := s.sessions.count(); n >= s.opt.SessionsMax {
		return fail(errs.Newf(errs.Again, "meta.sessions", "", "there are %d sessions already", n))
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
		t.put(key, (&session{State: sessionLive, Created: t.now, Client: client}).encode())
		return nil
	})
	if err != nil {
		return fail(err)
	}
	s.sessions.mu.Lock()
	s.sessions.byID[id] = &alive{seen: s.opt.Clock()}
	s.sessions.mu.Unlock()
	return meta.SessionInfo{
		ID: id, LeaseMs: uint32(s.opt.Lease.Milliseconds()), ClusterID: s.cluster,
	}, nil
}

// KeepAlive implements meta.Sessions.
func (s *Store) KeepAlive(_ context.Context, session uint64) error {
	return errs.Wrap("meta.KeepAlive", "", s.sessions.touch(session, s.opt.Clock()))
}

// EndSession implements meta.Sessions. What is unknown has ended. Files that cannot be measured at
// once are measured later, in the background.
func (s *Store) EndSession(ctx context.Context, session uint64) error {
	err := s.beginEnd(ctx, session, sessionEnded)
	if err != nil {
		return errs.Wrap("meta.EndSession", "", err)
	}
	if err := s.finishEnd(ctx, session); err != nil {
		s.opt.Log.Info("session ends later", "session", session, "error", err)
		wake(s.swept)
	}
	return nil
}

// EndClient implements meta.Sessions. A session that is ending already does not wait any longer.
func (s *Store) EndClient(ctx context.Context, client string) error {
	var ids []uint64
	err := s.look(func(t *txn) error {
		var bad error
		err := t.scan([]byte{kindSession}, func(key, value []byte) bool {
			var rec session
			if bad = parse(key, value, &rec); bad == nil && rec.Client == client {
				ids = append(ids, number(key, 0))
			}
			return bad == nil
		})
		return unlessNil(err, bad)
	})
	for _, id := range ids {
		if err == nil {
			s.sessions.silence(id)
			err = s.EndSession(ctx, id)
		}
	}
	return errs.Wrap("meta.EndClient", client, err)
}

// Sync implements meta.Sessions.
func (s *Store) Sync(ctx context.Context) error {
	return errs.Wrap("meta.Sync", "", s.kv.Sync(ctx))
}

// beginEnd marks a session as ending in the store, after which it opens nothing more.
func (s *Store) beginEnd(ctx context.Context, id uint64, state uint8) error {
	var writes time.Time
	if state == sessionDead {
		// Tick stands for the time between a look at the clock and a signature.
		writes = s.opt.Clock().Add(s.opt.CapTTL + s.opt.Tick)
	}
	if !s.sessions.end(id, writes) {
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
		t.put(key, rec.encode())
		return nil
	})
	if err != nil {
		s.sessions.revive(id)
	}
	return err
}

// finishEnd closes the handles of a session that is ending, as many as can be, and forgets it when
// none is left. What it had open for writing is measured first, and not before its last capability
// has run out: until then it may write, and the file counts as being written.
func (s *Store) finishEnd(ctx context.Context, id uint64) error {
	var all []openHandle
	err := s.look(func(t *txn) error {
		return t.scan(handlesOf(id), func(key, value []byte) bool {
			o := openHandle{id: number(key, 1)}
			if err := parse(key, value, &o.handle); err != nil {
				s.opt.Log.Error("unreadable handle", "session", id, "error", err)
			}
			all = append(all, o)
			return true
		})
	})
	if err != nil {
		return err
	}
	if err := s.closeAll(ctx, id, all); err != nil {
		return err
	}
	_, err = s.update(ctx, &meta.Caller{}, func(t *txn) error {
		t.demandNone(handlesOf(id))
		t.remove(sessionKey(id))
		return nil
	})
	if err == nil {
		s.sessions.forget(id)
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
func (s *Store) closeAll(ctx context.Context, session uint64, all []openHandle) error {
	busy := s.sessions.mayWrite(session, s.opt.Clock())
	mathrand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	c := meta.Caller{Session: session}
	var failed error
	failures := 0
	for _, o := range all {
		if o.writes() && busy {
			failed = errs.Newf(errs.Again, "meta.session", "", "its capabilities have not run out")
			continue
		}
		c.Cred.UID = o.UID
		err := s.closeDead(ctx, &c, o.id, o.handle)
		if err == nil || errs.KindOf(err) == errs.Closed {
			continue
		}
		failed = err
		if failures++; failures == failuresMax {
			break
		}
	}
	return failed
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
		dirty: true, size: a.Size, truncSeq: a.TruncSeq, mtime: s.now(),
	})
}
