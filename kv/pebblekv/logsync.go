package pebblekv

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// Pebble's goroutine that writes the log also syncs it, and writes nothing meanwhile: commits that
// need no disk would wait for those that do. So the guard leaves pebble's syncs of logs out, and a
// commit that asked for the disk syncs them itself, after its record was written. One sync is under
// way at a time; all who come while it runs share the next one.

// logs are the log files that are open.
type logs struct {
	mu       sync.Mutex
	over     sync.Cond // a sync is over; L is mu
	open     map[*guardedFile]struct{}
	running  bool
	started  uint64 // syncs
	finished uint64
}

func (l *logs) add(f *guardedFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[f] = struct{}{}
}

func (l *logs) remove(f *guardedFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, f)
}

// sync returns when everything is on disk that was written to the logs before the call, or the
// guard is frozen: the caller has to look.
func (l *logs) sync() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for need := l.started + 1; l.finished < need; {
		if l.running {
			l.over.Wait()
			continue
		}
		l.running = true
		l.started++
		n := l.started
		// The oldest first: what a power cut leaves must be a prefix.
		files := slices.SortedFunc(maps.Keys(l.open), func(a, b *guardedFile) int {
			return cmp.Compare(a.name, b.name)
		})
		l.mu.Unlock()
		for _, f := range files {
			f.syncLog()
		}
		l.mu.Lock()
		l.running, l.finished = false, n
		l.over.Broadcast()
	}
}

// syncLog syncs a log that is open. One that is closed meanwhile was synced by that.
func (f *guardedFile) syncLog() {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	if !f.closed {
		_ = f.change(func() error { return f.syncAll(f.File.SyncData) }) // a failure freezes
	}
}
