package store

import (
	"context"
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
	// does not keep others waiting for ever. tryMax is for attempts that removals at other servers
	// may have to wait for.
	workMax = 30 * time.Second
	tryMax  = 5 * time.Second

	// backlogsMax is how many servers' lists of late removals are worked on at once.
	backlogsMax = 16

	// endingMax is how many sessions are brought to their end at once, failuresMax how many removals
	// at a server may fail before the rest waits for the next round, deadMax how many sessions are
	// found dead in one round, so that a round is short.
	endingMax   = 16
	failuresMax = 4
	deadMax     = 256

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
	s.started = now
	err := s.look(func(t *txn) error {
		var bad error
		err := t.scan([]byte{kindSession}, func(key, value []byte) bool {
			var rec session
			if bad = parse(key, value, &rec); bad != nil {
				return false
			}
			live := rec.State == sessionLive
			a := &alive{seen: now, client: rec.Client, peer: rec.Peer, ending: !live, earlier: true,
				unclaimed: live, listens: rec.Listens, locks: rec.Locks, began: rec.Created}
			if rec.State == sessionDead {
				a.until = now.Add(s.opt.CapTTL)
			}
			s.sessions.add(number(key, 0), a)
			if rec.Locks {
				s.locks.Expect(number(key, 0))
			}
			return true
		})
		if err == nil {
			err = bad
		}
		if err == nil {
			err = s.loadServers(t)
		}
		if err == nil {
			err = s.loadOwners(t)
		}
		if err == nil {
			err = s.findBanned(t)
		}
		if err == nil {
			err = s.loadHosts(t)
		}
		if err == nil {
			err = s.loadMap(t)
		}
		if err == nil {
			err = s.loadPools(t)
		}
		if err == nil {
			err = s.loadBacklogs(t)
		}
		if err == nil {
			err = s.loadLosses(t)
		}
		if err == nil {
			err = t.scan([]byte{kindOrphan}, func(key, _ []byte) bool {
				s.sessions.adopt(meta.Ino(number(key, 0)))
				return true
			})
		}
		return err
	})
	return err
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
		s.pulse.beat(pulse)
		if pause > s.opt.Tick+s.opt.Lease/pausePart {
			s.opt.Log.Warn("the service did not run; leases begin anew", "pause", pause)
			s.pauses.Add(1)
			s.sessions.restart(s.steady())
		} else {
			s.endSilent(ctx, now.Add(-s.opt.Lease))
		}
		s.endBanned(ctx)
		s.allowFor(pause)
		s.leases.Expire(now)
		s.endDeadHolders(ctx)
		s.endSome(ctx, slots)
		s.endOrphans(ctx)
		s.settleLocks()
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
			if err := s.finishEnd(ctx, id); err != nil {
				s.opt.Log.Debug("session ends later", "session", id, "error", err)
			}
			s.sessions.work(id, false)
			<-slots
		})
	}
}

// truncateLoop carries out the truncations that the last process left. Later ones are carried
// out by the operations that need them; those that failed are found here too. A round ends with
// the first page of which nothing could be done, and the next one goes on behind it.
func (s *Store) truncateLoop(ctx context.Context) {
	start := []byte{kindPending}
	s.loop(ctx, nil, true, func() bool {
		for done := 1; done > 0 && ctx.Err() == nil; {
			var err error
			if start, done, err = s.truncateSome(ctx, start); err != nil && ctx.Err() == nil {
				s.opt.Log.Info("truncations are tried again", "error", err)
			}
		}
		return false
	})
}

// truncateSome carries out a page of pending truncations, of files all of whose servers are up.
// next is where the following page begins.
func (s *Store) truncateSome(ctx context.Context, start []byte) (next []byte, done int, err error) {
	page, next, err := s.truncations(start)
	if err != nil {
		return start, 0, err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, removalsMax)
	for _, f := range page {
		if !s.allUp(&f) {
			continue // nobody asks for what cannot be answered
		}
		slots <- struct{}{}
		wg.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, workMax)
			failed := s.settleTruncate(bounded, f.Ino)
			cancel()
			mu.Lock()
			if failed == nil || errs.KindOf(failed) == errs.NotFound {
				done++
			} else {
				err = failed
			}
			mu.Unlock()
			<-slots
		})
	}
	wg.Wait()
	return next, done, err
}

// truncations reads a page of files whose truncation is pending, and where the next one begins.
func (s *Store) truncations(start []byte) (page []meta.FileRef, next []byte, err error) {
	next = []byte{kindPending}
	var inos []meta.Ino
	err = s.look(func(t *txn) error {
		err := t.snap.Scan(start, kv.PrefixEnd(next), func(key, _ []byte, _ kv.Version) bool {
			inos = append(inos, meta.Ino(number(key, 0)))
			return len(inos) < batchMax
		})
		if len(inos) == batchMax {
			next = append(pendingKey(inos[batchMax-1]), 0)
		}
		for _, ino := range inos {
			n, bad := t.inode(ino)
			if bad == nil {
				page = append(page, n.ref(ino))
			} else {
				s.opt.Log.Error("truncation of no inode", "ino", ino, "error", bad)
			}
		}
		return err
	})
	return page, next, err
}

// allUp tells whether all servers of a file are up.
func (s *Store) allUp(f *meta.FileRef) bool {
	since := s.heardSince()
	for _, id := range f.Layout.Servers {
		if !s.servers.isUp(id, since) {
			return false
		}
	}
	return true
}
