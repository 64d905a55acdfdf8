package pebblekv

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/engine"
)

const opOpen = "pebblekv.Open"

// Open opens the store in opt.Dir or makes it. A directory that another process has open is
// errs.Busy, one that a newer build has written is errs.Version.
func Open(opt Options) (*Store, error) {
	opt = opt.withDefaults()
	if err := opt.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		opt:     opt,
		guard:   newGuard(opt.FS),
		closing: make(chan struct{}),
	}
	if err := s.lock(); err != nil {
		return nil, err
	}
	s.room = newHeadroom(&s.opt)
	if err := s.start(); err != nil {
		_ = s.guard.marks.close()
		_ = s.guard.unlock()
		return nil, err
	}
	if s.Health() == nil {
		s.room.refill()
	}
	s.watching.Go(s.watch)
	return s, nil
}

// openMarks compares logs and manifest with what was written, before pebble sees them: it would
// take damage for an end, and then write. A store that is opened for reading only writes no marks.
func (s *Store) openMarks(readOnly bool) error {
	fs, dir, mount := s.opt.FS, s.opt.Dir, mountID{}
	if fs == vfs.Default {
		mount = mountOf(dir)
	}
	found, torn, err := s.guard.marks.load(fs, dir)
	if err != nil {
		return errs.New(errs.Corrupt, opOpen, dir, err)
	}
	if !found {
		if err := checkFresh(fs, dir); err != nil {
			return err
		}
	}
	if torn {
		s.opt.Log.Warn("one copy of the record of the logs' ends does not verify; the other does",
			"dir", dir)
	}
	var bad []error
	s.guard.marks.verify(fs, dir, mount, func(err error) { bad = append(bad, err) })
	if len(bad) > 0 {
		return errs.New(errs.Corrupt, opOpen, dir, errors.Join(bad...))
	}
	if readOnly {
		return nil
	}
	err = s.guard.marks.open(fs, dir, !found, mount)
	return errs.Wrap(opOpen, dir, err)
}

// checkFresh refuses a database without a record of its logs' ends.
func checkFresh(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return errs.Wrap(opOpen, dir, err)
	}
	for _, name := range names {
		if _, ok := parseAppended(name); ok || strings.HasSuffix(name, ".sst") {
			return errs.Newf(errs.Invalid, opOpen, dir, "there is %s but no %s: an earlier build "+
				"wrote it, or something else than a store of this kind, or %[2]s was removed",
				name, marksName)
		}
	}
	return nil
}

// load brings the store's own records into memory and sets the next numbers aside.
func (s *Store) load() error {
	if err := s.checkFormat(); err != nil {
		return err
	}
	last, _, err := getVersion(s.db, keyLast)
	if err != nil {
		return err
	}
	ceiling, _, err := getVersion(s.db, keyCeiling)
	if err != nil {
		return err
	}
	if err := s.loadReplay(); err != nil {
		return err
	}
	// After Close the ceiling is the last commit. After a crash it is beyond: the numbers in
	// between may have been given to commits that are gone, and are never given again.
	s.version, s.given = last, max(last, ceiling)
	s.changes = engine.NewChanges(s.opt.ChangesBytes, last, s.given)
	s.recent = engine.NewRecent(last, s.given)
	s.counters = counters{}
	s.shown.set(last)
	s.ceiling = s.given
	if s.guard.err() != nil {
		return nil // for reading only: no number is given out
	}
	return s.raise()
}

// checkFormat refuses what this build does not understand, and marks a new store.
func (s *Store) checkFormat() error {
	var format uint32
	ok, err := peek(s.db, []byte(keyFormat), func(b []byte) error {
		var err error
		format, err = parseFormat(b)
		return err
	})
	switch {
	case err != nil:
		return err
	case ok && format > formatVersion:
		return errs.Newf(errs.Version, opOpen, s.opt.Dir,
			"the store has format %d, this build knows formats up to %d: "+
				"use the release that wrote it, or a later one", format, formatVersion)
	case ok && format == 0:
		return corrupt("format 0")
	case ok && format < formatVersion:
		return errs.Newf(errs.Version, opOpen, s.opt.Dir,
			"the store has format %d, this build needs %d: use the build that made it, or copy the "+
				"files to a new cluster with it", format, formatVersion)
	case ok:
		return nil
	}
	if empty, err := s.empty(); err != nil || !empty {
		return errors.Join(err, errs.Newf(errs.Invalid, opOpen, s.opt.Dir,
			"the directory holds a pebble database that is not a store of this kind"))
	}
	b := s.db.NewBatch()
	_ = b.Set([]byte(keyFormat), binary.BigEndian.AppendUint32(nil, formatVersion), nil)
	return s.writeSynced(b)
}

func (s *Store) empty() (bool, error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return false, err
	}
	any := it.First()
	return !any, told(opOpen, it.Close())
}

func (s *Store) loadReplay() error {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{prefixReplay}, UpperBound: []byte{prefixReplay + 1},
	})
	if err != nil {
		return err
	}
	s.replay = engine.NewReplay(kv.ReplayWindow)
	slot := 0
	for ok := it.First(); ok; ok = it.Next() {
		b, err := it.ValueAndErr()
		if err != nil {
			break // Close returns it
		}
		id, was, err := parseReplay(slot, it.Key(), b)
		if err != nil {
			_ = it.Close()
			return err
		}
		s.replay.Load(id, was)
		slot++
	}
	s.replay.Loaded()
	return told(opOpen, it.Close())
}

// Close implements kv.Store. With snapshots open it refuses with errs.Busy and changes nothing.
func (s *Store) Close() error {
	err := s.close()
	if errs.KindOf(err) != errs.Busy {
		s.watching.Wait()
	}
	return err
}

func (s *Store) close() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return errs.New(errs.Closed, "pebblekv.Close", s.opt.Dir, nil)
	}
	if n := s.snaps.Load(); n != 0 {
		return errs.Newf(errs.Busy, "pebblekv.Close", s.opt.Dir, "%d snapshots are open", n)
	}
	s.closed = true
	close(s.closing)
	err := s.failed()
	if err == nil {
		err = s.setAside(s.given) // nobody else is here: having life for writing includes to lead
	}
	if e := s.shut(); err == nil {
		err = e
	}
	return err
}

// shut closes pebble and releases the directory.
func (s *Store) shut() error {
	var err error
	if s.db != nil {
		err = errors.Join(s.latest.drop(), s.db.Close())
	}
	if e := s.guard.marks.close(); err == nil && s.guard.err() == nil {
		err = e
	}
	if e := s.guard.unlock(); err == nil {
		err = e
	}
	return errs.Wrap("pebblekv.Close", s.opt.Dir, err)
}

// openError gives pebble's error a kind. Pebble tells versions apart only in words.
func openError(dir string, err error) error {
	kind := errs.KindOf(err)
	switch {
	case strings.Contains(err.Error(), "written in unknown format major version"):
		return errs.Newf(errs.Version, opOpen, dir, "written by a newer build, use that: %w", err)
	case pebble.IsCorruptionError(err):
		kind = errs.Corrupt
	}
	return errs.New(kind, opOpen, dir, err)
}
