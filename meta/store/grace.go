package store

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// The grace time. Leases are not stored: a service that has just started does not know who relies
// on what, and who has written what it has not been told. Until all sessions that may hold leases
// have claimed what they have open, which they do after they have dropped their leases, or until
// leases have run out, nothing is changed, nothing is lent, and files that were being written are
// not looked at.

// endGrace ends the grace time when leases of the last process have run out.
func (s *Store) endGrace(ctx context.Context) {
	timer := time.NewTimer(s.opt.LeaseTime)
	defer timer.Stop()
	s.sessions.endGrace(false)
	select {
	case <-ctx.Done():
	case <-s.sessions.calm:
	case <-timer.C:
		// Who was not heard of may be moving a small file out that others have claimed: whoever
		// writes it next keeps that off.
		for _, ino := range s.sessions.written() {
			s.leases.Lapse(ino)
		}
		s.sessions.endGrace(true)
	}
}

// written lists the inodes that are open for writing.
func (x *sessions) written() (list []meta.Ino) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for ino, o := range x.inodes {
		if len(o.writers) > 0 {
			list = append(list, ino)
		}
	}
	return list
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

// awaitWriters waits if a file was being written when the last process ended, or a directory held
// alone: its writer may know more of it, and has not even said that it writes.
func (s *Store) awaitWriters(ctx context.Context, inos ...meta.Ino) error {
	if s.sessions.isCalm.Load() {
		return nil
	}
	written := false
	err := s.look(func(t *txn) error {
		for _, ino := range inos {
			n, err := t.inode(ino)
			if err != nil && errs.KindOf(err) != errs.NotFound {
				return err
			}
			written = written || err == nil && n.has(flagWriters|flagSole)
		}
		return nil
	})
	if err != nil || !written {
		return err
	}
	return s.awaitCalm(ctx)
}

// awaitCalm waits for the end of the grace time.
func (s *Store) awaitCalm(ctx context.Context) error {
	if s.sessions.isCalm.Load() {
		return nil
	}
	return s.parked(ctx, s.sessions.calm, nil)
}
