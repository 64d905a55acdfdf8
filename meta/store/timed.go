package store

import (
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// A client tells the time of its writes late. Where it has a lease it has told it before somebody
// sets another time. Several that write one file have none: what they tell of writes from before
// must not undo what was set. Clocks of hosts may differ, so they say how long ago it was. That is
// kept in memory, while the file is open: after a restart of the service nobody knows any more.

// timed notes that the times of a file were set.
func (x *sessions) timed(ino meta.Ino, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if o := x.inodes[ino]; o != nil && len(o.writers) > 0 {
		o.timed = now
	}
}

// timedSince tells whether they were set after a moment.
func (x *sessions) timedSince(ino meta.Ino, at time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[ino]
	return o != nil && o.timed.After(at)
}
