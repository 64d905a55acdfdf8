package kvtest

import (
	"fmt"
	"sync/atomic"

	"github.com/sluice-storage/sluice/kv"
)

// event is one operation of a history: a put to a key, or a read of it in a fresh snapshot. start
// and end come from one shared clock, so end < start of another event means "before" in real
// time.
type event struct {
	start, end int64
	read       bool
	key        string
	version    kv.Version // of the commit, or of the snapshot
	saw        kv.Version // read: the version of the key in the snapshot
}

// linearizable records a history of puts and reads from several goroutines and checks it:
// versions are the order of commits, so it is enough that they agree with real time and with what
// was read.
func linearizable(e *env) {
	const workers, each = 6, 60
	base := e.version()
	var clock atomic.Int64
	var histories [workers][]event
	parallel(workers, func(w int) {
		for i := range each {
			ev := event{key: fmt.Sprint("k", (w+i)%3), read: (w+i)%2 == 0, start: clock.Add(1)}
			if ev.read {
				snap := e.s.Snapshot()
				ev.version = snap.Version()
				ev.saw = e.getIn(snap, ev.key).v
				ev.end = clock.Add(1)
				e.closeSnap(snap)
			} else {
				v, err := e.try(kv.Txn{Puts: puts(ev.key, fmt.Sprint(w, i)), Sync: i%8 == 0})
				if err != nil {
					e.Errorf("Commit: %v", err)
					return
				}
				ev.version, ev.end = v, clock.Add(1)
			}
			histories[w] = append(histories[w], ev)
		}
	})
	var all []event
	for _, h := range histories {
		all = append(all, h...)
	}
	e.checkHistory(all, base)
}

func (e *env) checkHistory(all []event, base kv.Version) {
	e.Helper()
	commits := map[kv.Version]string{}
	for _, ev := range all {
		if !ev.read {
			if commits[ev.version] != "" {
				e.Errorf("version %d was given twice", ev.version)
			}
			commits[ev.version] = ev.key
		}
	}
	for v := base + 1; v <= base+kv.Version(len(commits)); v++ {
		if commits[v] == "" {
			e.Errorf("version %d was left out", v)
		}
	}
	for _, ev := range all {
		for _, other := range all {
			e.checkOrder(ev, other)
		}
		if ev.read {
			latest := kv.Version(0)
			for v, key := range commits {
				if key == ev.key && v <= ev.version && v > latest {
					latest = v
				}
			}
			if ev.saw != latest {
				e.Errorf("snapshot %d has %q at %d, want %d", ev.version, ev.key, ev.saw, latest)
			}
		}
	}
}

// checkOrder: what ended before another thing started comes first in the order of versions.
func (e *env) checkOrder(a, b event) {
	if a.end >= b.start {
		return
	}
	if a.version > b.version || (a.version == b.version && !b.read) {
		e.Errorf("version %d ended before version %d started (read %v, %v)",
			a.version, b.version, a.read, b.read)
	}
}
