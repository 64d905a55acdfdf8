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
	mu      sync.Mutex
	open    map[*guardedFile]struct{}
	running bool       // somebody syncs
	next    *syncRound // of those who have come meanwhile; nil: nobody has
}

// syncRound is a sync that several wait for. The first of them does it.
type syncRound struct {
	begin chan struct{} // closed when the one before is over
	done  chan struct{} // closed when it is over itself
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
	r := l.next
	switch {
	case !l.running:
		l.running = true
		l.mu.Unlock()
		l.syncOpen()
	case r == nil:
		r = &syncRound{begin: make(chan struct{}), done: make(chan struct{})}
		l.next = r
		l.mu.Unlock()
		<-r.begin
		l.syncOpen()
		close(r.done)
	default:
		l.mu.Unlock()
		<-r.done
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		l.running = false
		return
	}
	close(l.next.begin) // nobody joins it any more: what comes now may be written too late for it
	l.next = nil
}

// syncOpen syncs the logs that are open, the oldest first: a power cut must leave a prefix.
func (l *logs) syncOpen() {
	l.mu.Lock()
	files := slices.SortedFunc(maps.Keys(l.open), func(a, b *guardedFile) int {
		return cmp.Compare(a.name, b.name)
	})
	l.mu.Unlock()
	for _, f := range files {
		f.syncLog()
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
