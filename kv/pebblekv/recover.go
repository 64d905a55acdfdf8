package pebblekv

import (
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-storage/sluice/errs"
)

const (
	// watchEvery is how often a store that is frozen for lack of space looks for room, and others
	// for ballast that is missing.
	watchEvery = 500 * time.Millisecond

	// openMax is how long pebble may take to return from Open after a write has failed.
	openMax = 5 * time.Second

	// quietMax is how long new readers wait for older ones, so that a frozen store can be opened
	// again.
	quietMax = time.Second
)

// start opens pebble and loads the store's own records. When the file system is full it opens for
// reading only: the store is frozen then, and watch opens it again once there is room.
func (s *Store) start() error {
	if s.room.openable() {
		err := s.startWith(false)
		if err == nil || errs.KindOf(err) != errs.NoSpace {
			return err
		}
	}
	// A store that does not exist yet needs room for its first files; with some luck it is there.
	if desc, err := pebble.Peek(s.opt.Dir, s.opt.FS); err != nil || !desc.Exists {
		return s.startWith(false)
	}
	return s.startWith(true)
}

func (s *Store) startWith(readOnly bool) error {
	_ = s.guard.marks.close() // of an earlier attempt
	locked := s.guard.locked
	s.guard, s.queue = newGuard(s.opt.FS), newQueue(s.opt.MemtableBytes)
	s.guard.locked, s.guard.onEnd = locked, s.queue.fail
	if err := s.openMarks(readOnly); err != nil {
		return err
	}
	o := s.opt.pebbleOptions(s.guard, s.queue)
	if readOnly {
		s.guard.freeze(errs.Newf(errs.NoSpace, opOpen, s.opt.Dir, "the file system has no room for "+
			"opening the store, except for reading"))
		o.ReadOnly = true
	}
	db, err := s.openPebble(o)
	if err != nil {
		return err
	}
	s.db = db
	s.queue.reset()
	if err := s.load(); err != nil {
		_ = db.Close()
		s.db = nil
		return errs.Wrap(opOpen, s.opt.Dir, err)
	}
	return nil
}

// openPebble opens pebble, or leaves it alone when the guard froze meanwhile: pebble repeats a
// flush that fails for ever, and does not return from Open before it succeeds. What is left alone
// can change nothing any more; it costs memory, and a try ten times a second, until the process
// ends.
func (s *Store) openPebble(o *pebble.Options) (*pebble.DB, error) {
	type result struct {
		db  *pebble.DB
		err error
	}
	opened := make(chan result, 1)
	go func() {
		db, err := pebble.Open(s.opt.Dir, o)
		opened <- result{db, err}
	}()
	frozen := s.guard.done
	if o.ReadOnly {
		frozen = nil // it was from the beginning, and there is nothing to flush
	}
	var r result
	select {
	case r = <-opened:
	case <-frozen:
		select {
		case r = <-opened:
		case <-time.After(openMax):
			return nil, s.guard.err()
		}
	}
	if r.err != nil {
		return nil, openError(s.opt.Dir, r.err)
	}
	return r.db, nil
}

// watch opens the store again after it was frozen for lack of space and there is room, and keeps
// the ballast. It ends with Close.
func (s *Store) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-tick.C:
		}
		switch err := s.Health(); {
		case s.needsRoom():
			s.reopen()
		case err == nil:
			s.room.refill()
		}
	}
}

// needsRoom tells whether the store is frozen, and room would help.
func (s *Store) needsRoom() bool {
	s.life.RLock()
	defer s.life.RUnlock()
	return !s.closed && (s.db == nil || errs.KindOf(s.guard.err()) == errs.NoSpace)
}

// Health is the reason why commits are refused, or nil. The store may be frozen after a failed
// write, or short of space: then transactions that make room are still admitted. It does not wait.
func (s *Store) Health() error {
	if !s.life.TryRLock() {
		return nil // somebody closes it, or opens it again this moment
	}
	defer s.life.RUnlock()
	if s.closed {
		return errs.New(errs.Closed, "pebblekv.Health", s.opt.Dir, nil)
	}
	if err := s.failed(); err != nil {
		return err
	}
	return s.room.short()
}

// failed is why the store cannot be written to. The caller holds life.
func (s *Store) failed() error {
	if s.db == nil {
		return s.absent
	}
	return s.guard.err()
}

// reopen does what a restart of the process would do: what is on disk is what a crash at the moment
// of the failed write would have left. Commits that were acknowledged are there; one that failed
// may be there.
func (s *Store) reopen() {
	if !s.room.openable() {
		return
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed || s.db != nil && !s.quiet() {
		return
	}
	s.opt.Log.Info("there is room again: the store is opened anew", "dir", s.opt.Dir)
	if s.db != nil {
		_ = s.latest.drop()
		_ = s.db.Close() // what it could not write is known
		s.db = nil
	}
	if s.absent = s.start(); s.absent != nil {
		s.opt.Log.Error("the store could not be opened again", "dir", s.opt.Dir, "err", s.absent)
	}
}

// quiet waits for the last snapshot to be closed. The caller has life for writing, so that there
// are no new ones; a holder that itself waits for life must not wait for ever.
func (s *Store) quiet() bool {
	for begin := time.Now(); s.snaps.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > quietMax {
			return false
		}
	}
	return true
}
