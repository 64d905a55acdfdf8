package pebblekv

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// Salvage makes a store of what is left of a damaged one, in the directory to, which must not
// exist. The damaged one stays as it is. Tables are read as pebble reads them; then the commits of
// the logs are applied that no table has, those behind damage too: each says what it changes, so
// that only what the damaged records changed is missing. What that leaves is no state that there
// ever was: whoever knows what the keys mean must bring them into agreement.
//
// Request ids are forgotten. Version numbers go on behind all that were found.
func Salvage(opt Options, to string, report func(text string)) error {
	opt = opt.withDefaults()
	s := &Store{opt: opt, guard: newGuard(opt.FS), queue: newQueue(opt.MemtableBytes)}
	if err := s.lock(); err != nil {
		return err
	}
	defer s.guard.unlock()
	v := &salvage{opt: opt, fs: opt.FS, report: report}
	if _, _, err := v.marks.load(v.fs, opt.Dir); err != nil {
		report(err.Error())
	}
	var hopeless error
	v.marks.verify(v.fs, opt.Dir, mountID{}, func(err error) {
		report(err.Error())
		var d *Damage
		if errors.As(err, &d) && strings.HasPrefix(v.fs.PathBase(d.File), "MANIFEST-") {
			hopeless = errs.Newf(errs.Corrupt, "pebblekv.Salvage", opt.Dir,
				"which tables count cannot be known, only a backup helps: %w", err)
		}
	})
	if hopeless != nil {
		return hopeless
	}
	tables := to + ".tables"
	defer func() { _ = v.fs.RemoveAll(tables) }()
	if err := v.linkTables(tables); err != nil {
		return errs.Wrap("pebblekv.Salvage", tables, err)
	}
	out, err := Open(Options{Dir: to, FS: opt.FS, Log: opt.Log})
	if err != nil {
		return err
	}
	v.out = out
	if err = v.copyTables(tables); err == nil {
		err = v.replayLogs()
	}
	if err == nil {
		// What was given out and is lost lies between: a version is never used twice.
		out.version = v.last
		out.given = v.last + reserve
	}
	if e := out.Close(); err == nil {
		err = e
	}
	return errs.Wrap("pebblekv.Salvage", opt.Dir, err)
}

// salvage is one under way.
type salvage struct {
	opt    Options
	fs     vfs.FS
	marks  watermark
	report func(string)
	out    *Store
	last   kv.Version // the latest commit that was found
}

func (v *salvage) say(format string, args ...any) { v.report(fmt.Sprintf(format, args...)) }

// linkTables makes a directory with all that pebble needs to read the tables, and no logs.
func (v *salvage) linkTables(to string) error {
	if err := v.fs.MkdirAll(to, 0o700); err != nil {
		return err
	}
	names, err := v.fs.List(v.opt.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		from := v.fs.PathJoin(v.opt.Dir, name)
		switch {
		case strings.HasSuffix(name, ".sst"):
			err = v.fs.Link(from, v.fs.PathJoin(to, name))
		case strings.HasPrefix(name, "MANIFEST-") || strings.HasPrefix(name, "marker."):
			err = vfs.Copy(v.fs, from, v.fs.PathJoin(to, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyTables copies the state that the tables have.
func (v *salvage) copyTables(dir string) error {
	g := newGuard(v.fs)
	p := v.opt.pebbleOptions(g, newQueue(v.opt.MemtableBytes))
	p.ReadOnly = true
	db, err := pebble.Open(dir, p)
	if err != nil {
		return errs.Newf(errs.Corrupt, "pebblekv.Salvage", v.opt.Dir,
			"the tables cannot be read, only a backup helps: %w", openError(dir, err))
	}
	defer db.Close()
	if v.last, _, err = getVersion(db, keyLast); err != nil {
		v.say("%v", err)
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixUser},
		UpperBound: []byte{prefixUser + 1}})
	if err != nil {
		return told("pebblekv.Salvage", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		b, err := it.ValueAndErr()
		if err == nil {
			err = v.put(it.Key(), b)
		}
		if err != nil {
			_ = it.Close()
			return err
		}
	}
	if err := it.Close(); err != nil {
		v.say("a table is damaged; what it has behind that place is missing: %v", err)
	}
	return nil
}

func (v *salvage) put(key, value []byte) error {
	if version, _, err := parseValue(value); err == nil {
		v.last = max(v.last, version)
	}
	return v.out.db.Set(key, value, pebble.NoSync)
}

// replayLogs applies what the logs have and the tables have not.
func (v *salvage) replayLogs() error {
	names, err := v.fs.List(v.opt.Dir)
	if err != nil {
		return err
	}
	var logs []appended
	for _, name := range names {
		if a, ok := parseAppended(name); ok && a.kind == kindLog {
			logs = append(logs, a)
		}
	}
	slices.SortFunc(logs, func(a, b appended) int { return int(int64(a.number) - int64(b.number)) })
	flushed := v.last
	for _, a := range logs {
		if err := v.replayLog(a, flushed); err != nil {
			return err
		}
	}
	return nil
}

func (v *salvage) replayLog(a appended, flushed kv.Version) error {
	data, err := readFile(v.fs, v.fs.PathJoin(v.opt.Dir, a.String()), math.MaxInt64)
	if err != nil {
		return err
	}
	var record []byte
	for at, hole := int64(0), int64(-1); ; {
		at = skipPadding(at, a)
		if at >= int64(len(data)) {
			if end := v.marks.marks[a].synced.length; hole >= 0 && uint64(hole) < end {
				v.say("%s: bytes %d to %d are damaged; the commits that were there are lost", a, hole, end)
			}
			return nil
		}
		c, ok := chunkAt(data, at, a)
		if !ok && hole < 0 && isTrailer(data, at, a) {
			return nil
		}
		if !ok {
			if hole < 0 {
				hole = at
			}
			record = nil
			at++
			continue
		}
		if hole >= 0 {
			v.say("%s: bytes %d to %d are damaged; the commits that were there are lost", a, hole, at)
			hole = -1
		}
		at = c.end
		switch c.kind {
		case chunkFull, chunkFirst:
			record = append([]byte(nil), c.payload...)
		default:
			if record == nil {
				continue // its beginning is lost
			}
			record = append(record, c.payload...)
		}
		if c.kind == chunkFull || c.kind == chunkLast {
			if err := v.applyBatch(record, flushed); err != nil {
				return err
			}
			record = nil
		}
	}
}

// applyBatch applies one commit unless the tables have it.
func (v *salvage) applyBatch(record []byte, flushed kv.Version) error {
	var b pebble.Batch
	if err := b.SetRepr(record); err != nil {
		v.say("a commit cannot be read and is left out: %v", err)
		return nil
	}
	var version kv.Version
	for pass := range 2 {
		r := b.Reader()
		for {
			kind, key, value, ok, err := r.Next()
			if err != nil {
				v.say("a commit cannot be read and is left out: %v", err)
				return nil
			}
			if !ok {
				break
			}
			switch {
			case pass == 0 && string(key) == keyLast:
				version, err = parseVersion(value)
			case pass == 0 || version <= flushed || len(key) == 0 || key[0] != prefixUser:
			case kind == pebble.InternalKeyKindSet:
				err = v.put(key, value)
			case kind == pebble.InternalKeyKindDelete:
				err = v.out.db.Delete(key, pebble.NoSync)
			}
			if err != nil {
				return err
			}
		}
	}
	v.last = max(v.last, version)
	return nil
}
