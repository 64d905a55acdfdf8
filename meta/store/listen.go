package store

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Listen implements meta.Leases.
func (s *Store) Listen(ctx context.Context, l meta.Listening) (meta.Heard, error) {
	h, err := s.listen(ctx, &l)
	return h, errs.Wrap("meta.Listen", "", err)
}

func (s *Store) listen(ctx context.Context, l *meta.Listening) (meta.Heard, error) {
	h := meta.Heard{Life: s.life}
	if len(l.Acks) > meta.RecallsMax {
		return h, errs.Newf(errs.Invalid, "meta.Listen", "", "%d answers", len(l.Acks))
	}
	if err := s.sessions.touch(l.Session, s.steady()); err != nil {
		return h, err
	}
	if l.About != nil {
		s.introduce(l)
	}
	// Three times in a lease, as for sessions: one request may be lost.
	wait := min(time.Duration(l.WaitMs)*time.Millisecond, s.opt.LeaseTime/3)
	var ok bool
	if h.Extended, ok = s.leases.Hear(l); !ok {
		if err := s.beginListening(ctx, l.Session); err != nil {
			return h, err
		}
		h.Extended = true // nothing was recalled yet
		wait = 0          // it may not know that the service was restarted: all wait for its claims
	}
	until := time.Now().Add(wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for first := uint64(0); ; {
		recalls, epoch, wake := s.leases.Tell(l.Session, l.Seen)
		if wake == nil {
			return h, stale(l.Session)
		}
		if first == 0 {
			first = epoch
		}
		h.Recalls, h.Epoch = recalls, epoch
		var moved <-chan struct{}
		h.Map, moved = s.members.watch()
		news := l.Map != 0 && h.Map > l.Map
		if len(recalls) > 0 || epoch != first || news || !time.Now().Before(until) {
			return h, nil
		}
		if l.Map == 0 {
			moved = nil
		}
		if err := s.parkedFor(ctx, wake, moved, timer.C); err != nil {
			return h, err
		}
	}
}

// beginListening writes down that a session may hold leases: the next process has to wait for it.
func (s *Store) beginListening(ctx context.Context, id uint64) error {
	err := s.markSession(ctx, id, func(rec *session) *bool { return &rec.Listens })
	if err != nil {
		return err
	}
	return s.sessions.listen(id, func() { s.leases.Join(id) })
}

// listen notes that a session listens, and calls join unless it has ended meanwhile.
func (x *sessions) listen(id uint64, join func()) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[id]
	if a == nil || a.ending {
		return stale(id)
	}
	a.listens = true
	join()
	return nil
}
