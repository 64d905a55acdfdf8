package store

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

const (
	// removalsMax is how many inodes of the deletion queue are worked on at once, batchMax how
	// many of them are read at once.
	removalsMax = 8
	batchMax    = 256

	// workMax bounds one attempt at an I/O server in the background, so that a server that is away
	// does not keep others waiting for ever.
	workMax = 30 * time.Second

	// endingMax is how many sessions are brought to their end at once, failuresMax how many of a
	// session's files may fail before the rest waits for the next round, deadMax how many are
	// found dead in one round, so that a round is short.
	endingMax   = 16
	failuresMax = 4
	deadMax     = 256

	// pagesMax is how many pages of handles a session that ends itself may wait for.
	pagesMax = 4

	// pausePart is the part of a lease for which the service may stand still before it lets leases
	// begin anew. Clients renew three times in a lease: after half of the time between two renewals
	// nobody is dead because of the service.
	pausePart = 6

	// xattrBatch is how many attributes one transaction removes: below kv.MaxOps.
	xattrBatch = 48
)

// recover reads what the last process left: sessions, whose leases start anew, and servers. Work
// that it did not finish (removals, truncations, sessions that were ending) is found by the
// loops.
func (s *Store) recover() error {
	now := s.steady()
	return s.look(func(t *txn) error {
		var bad error
		err := t.scan([]byte{kindSession}, func(key, value []byte) bool {
			var rec session
			if bad = parse(key, value, &rec); bad != nil {
				return false
			}
			a := &alive{seen: now, ending: rec.State != sessionLive}
			if rec.State == sessionDead {
				a.until = now.Add(s.opt.CapTTL)
			}
			s.sessions.add(number(key, 0), a)
			return true
		})
		if err == nil {
			err = bad
		}
		if err == nil {
			err = t.scan([]byte{kindHandle}, func(key, _ []byte) bool {
				s.sessions.reserve(number(key, 0), math.MaxInt)
				return true
			})
		}
		if err == nil {
			err = s.loadServers(t)
		}
		if err == nil {
			err = s.loadLosses(t)
		}
		return err
	})
}

// loop calls work when there is a token, and every Tick while work says that something is left
// to do or always is set. It ends with ctx.
func (s *Store) loop(ctx context.Context, token chan struct{}, always bool,
	work func() (left bool)) {

	tick := time.NewTicker(s.opt.Tick)
	defer tick.Stop()
	left := work()
	for {
		again := tick.C
		if !left && !always {
			again = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-token:
		case <-again:
		}
		left = work()
	}
}

// sessionLoop ends sessions whose lease is over, and those that could not be ended at once. When it
// notices that the service itself did not run for a while (its process was stopped, its machine
// suspended or overloaded), nobody's silence means anything: leases begin anew, as after a restart.
//
// The order of the looks at the clocks is what makes that right: a pause behind the first one makes
// the judgement about sessions too mild, and is seen by the second one of this round or of
// the next. last is a look at it from before the first lease began.
func (s *Store) sessionLoop(ctx context.Context, last time.Time) {
	slots := make(chan struct{}, endingMax)
	s.loop(ctx, s.swept, true, func() bool {
		now := s.steady()
		pulse := s.opt.Pulse()
		pause := pulse.Sub(last)
		last = pulse
		if pause > s.opt.Tick+s.opt.Lease/pausePart {
			s.opt.Log.Warn("the service did not run; leases begin anew", "pause", pause)
			s.pauses.Add(1)
			s.sessions.restart(s.steady())
		} else {
			s.endSilent(ctx, now.Add(-s.opt.Lease))
		}
		s.endSome(ctx, slots)
		return true
	})
}

// endSilent marks sessions as dead that were not heard of since a moment.
func (s *Store) endSilent(ctx context.Context, since time.Time) {
	for _, id := range s.sessions.pick(deadMax, func(a *alive) bool {
		return !a.ending && a.seen.Before(since)
	}) {
		s.opt.Log.Warn("session is dead", "session", id)
		if err := s.beginEnd(ctx, id, sessionDead, since); err != nil {
			s.opt.Log.Error("session not ended", "session", id, "error", err)
		}
	}
}

// endSome goes on with sessions that are ending, each in a goroutine, because one may have to wait
// for servers that others do not need.
func (s *Store) endSome(ctx context.Context, slots chan struct{}) {
	now := s.steady()
	for _, id := range s.sessions.pick(cap(slots), func(a *alive) bool {
		return a.ending && !a.working && !now.Before(a.until)
	}) {
		select {
		case slots <- struct{}{}:
		default:
			return
		}
		s.sessions.work(id, true)
		s.done.Go(func() {
			if err := s.finishEnd(ctx, id, math.MaxInt); err != nil {
				s.opt.Log.Debug("session ends later", "session", id, "error", err)
			}
			s.sessions.work(id, false)
			<-slots
		})
	}
}

// truncateLoop carries out the truncations that the last process left. Later ones are carried
// out by the operations that need them; those that failed are found here too.
func (s *Store) truncateLoop(ctx context.Context) {
	s.loop(ctx, nil, true, func() (left bool) {
		var inos []meta.Ino
		err := s.look(func(t *txn) error {
			return t.scan([]byte{kindPending}, func(key, _ []byte) bool {
				inos = append(inos, meta.Ino(number(key, 0)))
				return len(inos) < batchMax
			})
		})
		for _, ino := range inos {
			bounded, cancel := context.WithTimeout(ctx, workMax)
			failed := s.settleTruncate(bounded, ino)
			cancel()
			if failed != nil && errs.KindOf(failed) != errs.NotFound {
				err = failed
			}
		}
		if err != nil && ctx.Err() == nil {
			s.opt.Log.Info("truncations are tried again", "error", err)
		}
		return err != nil
	})
}

// removeLoop works through the deletion queue. What fails stays in it for the next round.
func (s *Store) removeLoop(ctx context.Context) {
	s.loop(ctx, s.removed, false, func() (left bool) {
		after := []byte{kindRemoval}
		for ctx.Err() == nil {
			batch, err := s.removals(after)
			if err == nil && len(batch) > 0 {
				// Until its removal is on disk, a power cut could bring an inode back, without
				// data.
				err = s.kv.Sync(ctx)
			}
			if err != nil {
				s.opt.Log.Error("deletion queue", "error", err)
				return true
			}
			if len(batch) == 0 {
				return left
			}
			left = s.removeBatch(ctx, batch) || left
			after = append(removalKey(batch[len(batch)-1].Ino), 0)
		}
		return left
	})
}

// removals reads the queue from a key on.
func (s *Store) removals(start []byte) ([]removal, error) {
	var batch []removal
	err := s.look(func(t *txn) error {
		var bad error
		err := t.snap.Scan(start, kv.PrefixEnd([]byte{kindRemoval}),
			func(key, value []byte, _ kv.Version) bool {
				var r removal
				if bad = parse(key, value, &r); bad != nil {
					return false
				}
				r.Ino = meta.Ino(number(key, 0))
				batch = append(batch, r)
				return len(batch) < batchMax
			})
		if err == nil {
			err = bad
		}
		return err
	})
	return batch, err
}

// removeBatch removes the remains of several inodes, a few at a time, and tells whether some are
// left.
func (s *Store) removeBatch(ctx context.Context, batch []removal) (left bool) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, removalsMax)
	for _, r := range batch {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			bounded, cancel := context.WithTimeout(ctx, workMax)
			defer cancel()
			err := s.removeRemains(bounded, r)
			if err == nil {
				s.gone.Add(1)
				return
			}
			if ctx.Err() == nil {
				s.opt.Log.Info("removal is tried again", "ino", r.Ino, "error", err)
			}
			mu.Lock()
			left = true
			mu.Unlock()
		})
	}
	wg.Wait()
	return left
}

// removeRemains removes attributes and stripe objects, then the record that demanded it.
func (s *Store) removeRemains(ctx context.Context, r removal) error {
	for more := true; more; {
		_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
			t.kv.MakesRoom = true
			n := 0
			err := t.scan(xattrsOf(r.Ino), func(key, _ []byte) bool {
				t.remove(append([]byte(nil), key...))
				n++
				return n < xattrBatch
			})
			if more = n == xattrBatch; err == nil && n == 0 {
				err = errNothing
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.Layout.Width() > 0 {
		if err := s.opt.Objects.Remove(ctx, r.FileRef); err != nil {
			return err
		}
	}
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		t.kv.MakesRoom = true
		t.remove(removalKey(r.Ino))
		return nil
	})
	return err
}
