package activity

import (
	"sync/atomic"
	"time"
)

// How many clients and objects are told apart. More than a screen shows; those that find no place
// are counted together.
const (
	clientsMax = 1 << 10
	objectsMax = 1 << 12
)

const (
	probes  = 8
	idleMax = time.Minute // after that a place goes to another

	lastExact = 100 * time.Millisecond // how exactly the last use is known
)

// table counts by number, in a fixed number of places. A place that was not used for a minute goes
// to whoever needs one: what is counted at that very moment may be counted for the other.
type table struct {
	rows  []row
	other row
}

// row is one client or object. It fills a line of the processor's cache.
type row struct {
	id       atomic.Uint64 // 0: none
	requests atomic.Uint64
	failed   atomic.Uint64
	read     atomic.Uint64
	written  atomic.Uint64
	last     atomic.Int64
	_        [16]byte
}

func (t *table) init(n int) { t.rows = make([]row, n) }

// find is the row of a number, which is not 0.
func (t *table) find(id uint64, now time.Duration) *row {
	const odd = 0x9e3779b97f4a7c15
	first := id * odd >> 32
	n := uint64(len(t.rows))
	var oldest *row
	for i := range uint64(probes) {
		r := &t.rows[(first+i)%n]
		have := r.id.Load()
		if have == 0 && r.id.CompareAndSwap(0, id) {
			r.last.Store(int64(now)) // or it would be the oldest of all
			return r
		}
		if have == id || have == 0 && r.id.Load() == id {
			return r
		}
		if oldest == nil || r.last.Load() < oldest.last.Load() {
			oldest = r
		}
	}
	was := oldest.id.Load()
	if now-time.Duration(oldest.last.Load()) < idleMax || !oldest.id.CompareAndSwap(was, id) {
		return &t.other
	}
	oldest.requests.Store(0)
	oldest.failed.Store(0)
	oldest.read.Store(0)
	oldest.written.Store(0)
	oldest.last.Store(int64(now))
	return oldest
}

func (r *row) add(now time.Duration, d *Done) {
	r.requests.Add(1)
	if now-time.Duration(r.last.Load()) > lastExact {
		r.last.Store(int64(now))
	}
	if d.Failed {
		r.failed.Add(1)
	}
	if d.Read > 0 {
		r.read.Add(uint64(d.Read))
	}
	if d.Written > 0 {
		r.written.Add(uint64(d.Written))
	}
}

// Use is what a client has asked for, or what was asked about an object, since it is counted. A
// number that is less than it was before is counted anew.
type Use struct {
	ID       uint64        `json:"id"`              // 0: all that are not told apart
	Group    uint64        `json:"group,omitempty"` // to which it belongs: the process of a thread
	Name     string        `json:"name,omitempty"`  // of the client, where it is known
	Open     int           `json:"open,omitempty"`  // files that it has open, where that is known
	Requests uint64        `json:"requests"`
	Failed   uint64        `json:"failed"`
	Read     uint64        `json:"read_bytes"`
	Written  uint64        `json:"written_bytes"`
	Idle     time.Duration `json:"idle"` // since the last one, about
}

func (r *row) use(now time.Duration) Use {
	return Use{ID: r.id.Load(), Requests: r.requests.Load(), Failed: r.failed.Load(),
		Read: r.read.Load(), Written: r.written.Load(),
		Idle: now - time.Duration(r.last.Load())}
}

// list are all that were used within the last minute.
func (t *table) list(now time.Duration) []Use {
	all := []Use{}
	for i := range t.rows {
		r := &t.rows[i]
		if r.id.Load() == 0 || r.requests.Load() == 0 {
			continue
		}
		if u := r.use(now); u.Idle < idleMax {
			all = append(all, u)
		}
	}
	if t.other.requests.Load() > 0 {
		all = append(all, t.other.use(now))
	}
	return all
}
