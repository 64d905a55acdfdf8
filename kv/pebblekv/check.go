package pebblekv

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// Check reads everything of a store that nobody has open and reports what is damaged. It changes
// nothing. With what can be read at all, look is called; it is not if the store cannot be opened.
func Check(opt Options, report func(error), look func(kv.Snapshot) error) error {
	opt = opt.withDefaults()
	if err := opt.validate(); err != nil {
		return err
	}
	if _, err := opt.FS.Stat(opt.Dir); err != nil {
		return errs.Wrap("pebblekv.Check", opt.Dir, err)
	}
	s := &Store{opt: opt, guard: newGuard(opt.FS), queue: newQueue(opt.MemtableBytes)}
	if err := s.lock(); err != nil {
		return err
	}
	defer s.guard.unlock()
	if !checkMarks(opt, report) {
		return nil // pebble would take the damage for an end and show less
	}
	p := opt.pebbleOptions(s.guard, s.queue)
	p.ReadOnly = true
	db, err := pebble.Open(opt.Dir, p)
	if err != nil {
		report(openError(opt.Dir, err))
		return nil
	}
	defer db.Close()
	if err := readAllOf(db); err != nil {
		report(err)
		return nil
	}
	view := db.NewSnapshot()
	defer view.Close()
	return look(&snapshot{store: s, view: &sharedView{Snapshot: view}})
}

// checkMarks tells whether logs and manifest are what they were.
func checkMarks(opt Options, report func(error)) (sound bool) {
	var marks watermark
	found, torn, err := marks.load(opt.FS, opt.Dir)
	switch {
	case err != nil:
		report(err)
		return false
	case !found:
		if err := checkFresh(opt.FS, opt.Dir); err != nil {
			report(err)
			return false
		}
	case torn:
		report(damaged(opt.FS, opt.Dir, marksName, 0, "one of two copies does not verify; the other "+
			"does, and the next start writes both"))
	}
	var mount mountID
	if opt.FS == vfs.Default {
		mount = mountOf(opt.Dir)
	}
	sound = true
	marks.verify(opt.FS, opt.Dir, mount, func(err error) {
		sound = false
		report(err)
	})
	return sound
}

// readAllOf reads every key and value, and so every block of every table that holds one.
func readAllOf(db *pebble.DB) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return told("pebblekv.Check", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if _, err := it.ValueAndErr(); err != nil {
			return told("pebblekv.Check", errors.Join(err, it.Close()))
		}
	}
	return told("pebblekv.Check", it.Close())
}
