// Package pebblekv is the embedded engine of package kv: one directory, one process, on pebble.
//
// A commit has two parts. The ordered one checks the transaction against the current state, numbers
// it and hands it to pebble's log and memtable, in a few microseconds and without waiting for the
// disk; one commit at a time does that, for all that have come meanwhile (group.go). The durable
// one waits for the log outside of it, so that all commits that wait share one write of it, and
// those that asked for it share one sync (logsync.go).
//
// The first failed write freezes the directory (guard.go): nothing is written any more, reads go
// on, and what is on disk is what a crash at that moment would have left, which the next Open
// recovers. After a write that failed for lack of space the store does that by itself when there is
// room (recover.go); so that this does not happen it keeps a reserve of its file system for
// transactions that make room (headroom.go).
//
// Damage to what was synced is noticed when the directory is opened, or read: pebble alone would
// take some of it for the end of a log. watermark.go says how.
//
// It does not replicate and does not repair. What a range check needs to know about recent
// changes is kept in memory, bounded; see engine.Changes.
//
// Read pebblekv.go first, then commit.go, group.go, guard.go and recover.go; format.go draws the
// keys and values. bare.go is for benches: pebble alone.
package pebblekv

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/engine"
)

const (
	// reserve is how many version numbers are set aside on disk at once. It costs one disk flush
	// per million commits, and a crash burns at most so many of 2^64 numbers.
	reserve = 1 << 20

	// queuedMax is how many memtables' worth may wait for being written out before commits wait,
	// too. With the one being filled this bounds them to 4 * MemtableBytes.
	queuedMax = 3

	// minMemtableBytes keeps the largest transaction (256 KiB) well below the half of a memtable,
	// above which pebble would treat it specially.
	minMemtableBytes = 1 << 20

	// maxOpenFiles bounds pebble's open tables; each is at least 2 MiB once compacted.
	maxOpenFiles = 256
)

// Options configures a store.
type Options struct {
	// Dir is the directory of the store; it is made if it does not exist. Required.
	Dir string

	// CacheBytes bounds the cache of table blocks, in bytes. It is filled as it is used. Default
	// 16 MiB.
	CacheBytes int64

	// MemtableBytes is the size of a memtable, in bytes; there are at most 4. Small ones are
	// started with, so that an idle store is small. Default 16 MiB, at least 1 MiB.
	MemtableBytes int

	// ChangesBytes bounds the memory of recent changes for range checks, in bytes; the promise of
	// kv.SinceWindow comes first. Default 4 MiB.
	ChangesBytes int

	// ReserveBytes is how much of the file system is kept for transactions that make room
	// (kv.Txn.MakesRoom), in bytes: at most a 16th of it. Others are refused with errs.NoSpace when
	// less than half of that is left. Default 0: nothing is kept.
	ReserveBytes int64

	// Log receives what pebble has to say, warnings and failures. Default: nobody.
	Log *slog.Logger

	// FS replaces the file system in tests. Default: the operating system's.
	FS vfs.FS
}

func (o Options) withDefaults() Options {
	if o.CacheBytes == 0 {
		o.CacheBytes = 16 << 20
	}
	if o.MemtableBytes == 0 {
		o.MemtableBytes = 16 << 20
	}
	if o.ChangesBytes == 0 {
		o.ChangesBytes = 4 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	return o
}

func (o Options) validate() error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "pebblekv.Open", o.Dir, format, args...)
	}
	switch {
	case o.Dir == "":
		return bad("no directory given")
	case o.CacheBytes < 0:
		return bad("cache of %d bytes", o.CacheBytes)
	case o.MemtableBytes < minMemtableBytes:
		return bad("memtable of %d bytes, at least %d", o.MemtableBytes, minMemtableBytes)
	case o.ChangesBytes < 0:
		return bad("%d bytes for changes", o.ChangesBytes)
	case o.ReserveBytes < 0:
		return bad("a reserve of %d bytes", o.ReserveBytes)
	}
	return nil
}

// Store implements kv.Store.
type Store struct {
	opt  Options
	room *headroom

	// life is held for reading by everything that uses db, for its whole duration, and for
	// writing only by Close and by reopen, which so wait for what is running. It comes before turn.
	life   sync.RWMutex
	closed bool
	guard  *guard
	queue  *queue
	db     *pebble.DB
	absent error        // why db is nil: it could not be opened again
	snaps  atomic.Int64 // open snapshots

	closing  chan struct{} // closed by Close
	watching sync.WaitGroup

	turn   turn   // of the ordered section: whoever leads has what follows
	shown  shown  // the version that snapshots see
	latest latest // and what they see it in

	version  kv.Version // the last commit
	given    kv.Version // the last number given out; beyond version after a crash
	ceiling  kv.Version // numbers up to here are set aside on disk
	replay   *engine.Replay
	changes  *engine.Changes
	recent   *engine.Recent
	counters counters
}

// pebbleOptions fits pebble to metadata: small values, many point reads of keys that do not
// exist.
func (o Options) pebbleOptions(g *guard, q *queue) *pebble.Options {
	p := &pebble.Options{
		FS: g,
		// Pebble takes memtables off the cache's budget; without room for them nothing is cached.
		CacheSize: o.CacheBytes + int64((queuedMax+1)*o.MemtableBytes),
		// Not newer: later formats write into the log how far it was synced, and take a log that
		// is shorter for damaged. The guard leaves syncs out, so that would be untrue: after a
		// power cut the store would not open. What it would notice, the watermark does.
		FormatMajorVersion: pebble.FormatColumnarBlocks,
		Logger:             logger{o.Log, g},
		MaxOpenFiles:       maxOpenFiles,
		MemTableSize:       uint64(o.MemtableBytes),
		// A commit that stalls inside pebble could not be ended when the disk fails. So pebble
		// never stalls; commits wait in front of it, see queue.
		MemTableStopWritesThreshold: 4 * queuedMax,
		L0StopWritesThreshold:       1 << 20,
		// Compaction was half of the processor time of a commit. It rewrites what lies below the
		// tables that it takes in, so it should take in many; a reader has a filter for each.
		L0CompactionThreshold:      8,
		CompactionConcurrencyRange: func() (lower, upper int) { return 1, 2 },
	}
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	p.EventListener = &pebble.EventListener{
		BackgroundError: func(err error) { o.Log.Error("pebble in the background", "err", err) },
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			o.Log.Error("stored data is corrupt", "path", info.Path, "err", info.Details)
		},
		WALCreated: func(info pebble.WALCreateInfo) {
			if info.Err == nil {
				q.rotated()
			}
		},
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err == nil {
				q.flushed(info.Input)
			}
		},
	}
	return p
}

// logger gives pebble's words to slog. Fatalf means that pebble cannot go on writing. It wants
// the process to end; instead the directory is frozen and pebble returns the error, which is as
// safe.
type logger struct {
	log   *slog.Logger
	guard *guard
}

func (l logger) Infof(string, ...any) {}

func (l logger) Errorf(format string, args ...any) {
	l.log.Warn("pebble", "text", errs.Newf(errs.IO, "", "", format, args...))
}

func (l logger) Fatalf(format string, args ...any) {
	l.guard.freeze(errs.Newf(errs.IO, "pebble", "", format, args...))
}
