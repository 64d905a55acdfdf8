package store

import (
	"context"
	"time"
)

// The grace time. Leases are not stored: a service that has just started does not know who relies on
// what, and who has written what it has not been told. Until all sessions that may hold leases have
// claimed what they have open, which they do after they have dropped their leases, or until leases
// have run out, nothing is changed, nothing is lent, and files that were being written are not looked
// at.

// endGrace ends the grace time when leases of the last process have run out.
func (s *Store) endGrace(ctx context.Context) {
	timer := time.NewTimer(s.opt.LeaseTime)
	defer timer.Stop()
	s.sessions.endGrace(false)
	select {
	case <-ctx.Done():
	case <-s.sessions.calm:
	case <-timer.C:
		s.sessions.endGrace(true)
	}
}

func (x *sessions) endGrace(force bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calmLocked(force)
}

// calmLocked ends the grace time if nobody is awaited any more.
func (x *sessions) calmLocked(force bool) {
	if (x.awaited == 0 || force) && !x.isCalm.Swap(true) {
		close(x.calm)
	}
}

// awaitCalm waits for the end of the grace time.
func (s *Store) awaitCalm(ctx context.Context) error {
	if s.sessions.isCalm.Load() {
		return nil
	}
	return s.parked(ctx, s.sessions.calm, nil)
}
