package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/lock"
)

// Locks are not in the store. What is there of them is a mark in the record of each session that
// has ever asked for one: after a restart nothing is granted until these sessions have claimed what
// they held, or have ended. A session that is heard of and has not claimed when LockGrace is over
// has lost its locks.

// newLocks makes an empty table.
func newLocks(opt *Options) *lock.Table {
	var life [8]byte
	rand.Read(life[:])
	return lock.New(lock.Options{Life: binary.BigEndian.Uint64(life[:]) | 1,
		PerSession: opt.LocksMax, All: opt.LocksAllMax})
}

// locker checks a call of meta.Locks and refuses sessions that have ended.
func (s *Store) locker(c *meta.Caller, l *meta.Lock, typed bool) error {
	if err := l.Validate(typed); err != nil {
		return err
	}
	return s.sessions.usable(c.Session)
}

// Lock implements meta.Locks.
func (s *Store) Lock(ctx context.Context, c meta.Caller, l meta.Lock, mode meta.LockMode) (
	meta.LockState, error) {

	fail := func(err error) (meta.LockState, error) { return 0, errs.Wrap("meta.Lock", "", err) }
	if err := s.locker(&c, &l, true); err != nil {
		return fail(err)
	}
	switch mode {
	case meta.LockTry:
	case meta.LockWait:
		if c.ReqID == (meta.Caller{}).ReqID {
			return fail(errs.Newf(errs.Invalid, "meta.lock", "", "a request without an id cannot wait"))
		}
	case meta.LockCancel:
		if s.locks.Cancel(c.Session, c.ReqID) {
			return meta.LockGranted, nil
		}
		return meta.LockGone, s.stillThere(c.Session)
	default:
		return fail(errs.Newf(errs.Invalid, "meta.lock", "", "mode %d", mode))
	}
	if err := s.markLocks(ctx, c.Session); err != nil {
		return fail(err)
	}
	err := s.look(func(t *txn) error {
		_, err := t.inode(l.Ino)
		return err
	})
	if err == nil {
		err = ctx.Err() // a request of a connection that is gone is repeated elsewhere
	}
	if err != nil {
		return fail(err)
	}
	state, err := s.locks.Lock(c.Session, c.ReqID, &l, mode == meta.LockWait)
	if err == nil {
		err = s.stillThere(c.Session)
	}
	return state, errs.Wrap("meta.Lock", "", err)
}

// stillThere is asked after a lock was taken: a session that has ended in between must not keep it.
// Whoever ends a session looks at its locks after it has become unknown; who finds it unknown
// here does so instead.
func (s *Store) stillThere(session uint64) error {
	err := s.sessions.usable(session)
	if err == nil {
		return nil
	}
	s.locks.Stop(session)
	if !s.sessions.known(session) {
		s.locks.End(session)
	}
	return err
}

// Unlock implements meta.Locks.
func (s *Store) Unlock(ctx context.Context, c meta.Caller, l meta.Lock) error {
	err := s.locker(&c, &l, false)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		s.locks.Unlock(c.Session, c.ReqID, &l)
	}
	return errs.Wrap("meta.Unlock", "", err)
}

// TestLock implements meta.Locks.
func (s *Store) TestLock(_ context.Context, c meta.Caller, l meta.Lock) (meta.Lock, bool, error) {
	if err := s.locker(&c, &l, true); err != nil {
		return meta.Lock{}, false, errs.Wrap("meta.TestLock", "", err)
	}
	holder, found, err := s.locks.Test(c.Session, &l)
	return holder, found, errs.Wrap("meta.TestLock", "", err)
}

// AwaitLocks implements meta.Locks.
func (s *Store) AwaitLocks(ctx context.Context, c meta.Caller, life, after uint64,
	wait time.Duration) (meta.LockNews, error) {

	if err := s.sessions.usable(c.Session); err != nil {
		return meta.LockNews{}, errs.Wrap("meta.AwaitLocks", "", err)
	}
	limit, cancel := context.WithTimeout(ctx, min(max(wait, 0), meta.LockAwaitMax))
	defer cancel()
	news, err := s.locks.Await(limit, c.Session, life, after)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = s.stillThere(c.Session)
	}
	return news, errs.Wrap("meta.AwaitLocks", "", err)
}

// ClaimLocks implements meta.Locks.
func (s *Store) ClaimLocks(ctx context.Context, c meta.Caller, old uint64, locks []meta.Lock,
	more bool) ([]meta.Lock, error) {

	fail := func(err error) ([]meta.Lock, error) { return nil, errs.Wrap("meta.ClaimLocks", "", err) }
	for i := range locks {
		if err := locks[i].Validate(true); err != nil {
			return fail(err)
		}
	}
	if err := s.sessions.usable(c.Session); err != nil {
		return fail(err)
	}
	if len(locks) > 0 {
		if err := s.markLocks(ctx, c.Session); err != nil {
			return fail(err)
		}
	}
	if !s.sessions.sameClient(c.Session, old) {
		old = c.Session // another client's, or one that is over: nothing is left of it
	}
	lost := s.locks.Claim(c.Session, old, locks, more)
	return lost, errs.Wrap("meta.ClaimLocks", "", s.stillThere(c.Session))
}

// markLocks notes in a session's record that it has locks, once.
func (s *Store) markLocks(ctx context.Context, id uint64) error {
	if s.sessions.hasLocks(id) {
		return nil
	}
	err := s.markSession(ctx, id, func(rec *session) *bool { return &rec.Locks })
	if err == nil {
		s.sessions.setLocks(id)
	}
	return err
}

// holdersMax is how many clients are looked at in one round: each costs a look at its process.
const holdersMax = 64

// endDeadHolders ends clients that others wait for, because of a lock, or because after a start
// nobody knows yet what they have open, and whose process the service sees to be dead: it does not
// wait for their lease. What EndClient says of such clients holds here too.
func (s *Store) endDeadHolders(ctx context.Context) {
	before := s.steady().Add(time.Nanosecond)
	ids := append(s.locks.Blocking(holdersMax), s.locks.Expected()...)
	ids = append(s.sessions.pick(holdersMax, func(a *alive) bool { return a.earlier }), ids...)
	for _, id := range ids[:min(len(ids), holdersMax)] {
		client := s.sessions.clientOf(id)
		if dead, known := s.opt.Dead(client); client == "" || !dead || !known {
			continue
		}
		s.opt.Log.Warn("a client that others wait for is dead", "client", client)
		s.sessions.silence(id, before)
		if err := s.beginEnd(ctx, id, sessionEnded, before); err != nil {
			s.opt.Log.Error("session not ended", "session", id, "error", err)
		}
	}
}

// settleLocks stops waiting for claims that will not come: of sessions that were heard of since the
// start, when LockGrace is over.
func (s *Store) settleLocks() {
	if s.steady().Before(s.started.Add(s.opt.LockGrace)) {
		return
	}
	for _, id := range s.locks.Expected() {
		switch {
		case !s.sessions.known(id):
			s.locks.Settle(id)
		case s.sessions.wasHeard(id):
			s.opt.Log.Warn("a session has not claimed its locks; they are lost", "session", id)
			s.locks.Settle(id)
		}
	}
}

// usable is errs.Stale when a session is unknown or ending. It does not renew the lease.
func (x *sessions) usable(id uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a == nil || a.ending {
		return stale(id)
	}
	return nil
}

func (x *sessions) known(id uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byID[id] != nil
}

// wasHeard tells whether a session that is not ending was heard of in this life of the service.
func (x *sessions) wasHeard(id uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	return a != nil && !a.ending && a.heard
}

// sameClient tells whether two sessions that are known belong to one client.
func (x *sessions) sameClient(a, b uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	one, other := x.byID[a], x.byID[b]
	return one != nil && other != nil && one.sameClient(other) && one.client != ""
}

// clientOf is the name of a session's client; empty if it is unknown.
func (x *sessions) clientOf(id uint64) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil {
		return a.client
	}
	return ""
}

func (x *sessions) hasLocks(id uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	return a != nil && a.locks
}

func (x *sessions) setLocks(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[id]; a != nil {
		a.locks = true
	}
}
