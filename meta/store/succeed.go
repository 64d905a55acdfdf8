package store

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Succeed implements meta.Successions. The old session ends as one that was found dead: its handles
// and locks stay while its capabilities last, which the successor cuts short.
func (s *Store) Succeed(ctx context.Context, c meta.Caller, old uint64, done bool) error {
	err := s.sessions.succeeds(c.Session, old)
	if err == nil { // whatever comes late of it
		err = s.beginEnd(ctx, old, sessionDead, time.Time{})
	}
	if err == nil && done {
		s.sessions.silence(old, time.Time{})
		if ended := s.finishEnd(ctx, old); ended != nil {
			s.opt.Log.Info("session ends later", "session", old, "error", ended)
			wake(s.swept)
		}
	}
	return errs.Wrap("meta.Succeed", "", err)
}

// succeeds tells whether a session may take the place of another one.
func (x *sessions) succeeds(id, old uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	heir, was := x.byID[id], x.byID[old]
	switch {
	case heir == nil || heir.ending:
		return stale(id)
	case was == nil:
		return errs.New(errs.NotFound, "meta.session", "", nil)
	case id == old || was.client == "" || !was.sameClient(heir):
		return errs.Newf(errs.Perm, "meta.session", "", "it is not a session before this one")
	}
	return nil
}

// HeldLocks implements meta.Successions.
func (s *Store) HeldLocks(_ context.Context, c meta.Caller, after meta.Lock) ([]meta.Lock, error) {
	if err := s.sessions.usable(c.Session); err != nil {
		return nil, errs.Wrap("meta.HeldLocks", "", err)
	}
	return s.locks.Held(c.Session, after, meta.LockClaimMax), nil
}
