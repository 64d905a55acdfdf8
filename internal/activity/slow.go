package activity

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The slowest requests of the last minute: for each of six times of ten seconds the sixteen slowest
// ones. A request looks at two numbers to know that it is none of them, as nearly all are not.
const (
	slowMin     = time.Millisecond // what is quicker is slow for nobody
	slowEach    = 16
	slowWindow  = 10 * time.Second
	slowWindows = 6
)

// slow keeps them.
type slow struct {
	floor atomic.Int64 // what is quicker than that is not kept
	until atomic.Int64 // the end of the current window

	mu      sync.Mutex
	windows [slowWindows]window
	current int
}

type window struct {
	list [slowEach]slowOne
	n    int
}

type slowOne struct {
	end, took      time.Duration
	op             int
	client, object uint64
	done           Done
}

// wants tells whether a request may be one of the slowest.
func (s *slow) wants(now, took time.Duration) bool {
	return int64(took) >= s.floor.Load() ||
		took >= slowMin && int64(now) >= s.until.Load()
}

// note keeps a request if it is one of the slowest. Where another one is just being noted it is
// not waited for.
func (s *slow) note(now, took time.Duration, q *Request, d *Done) {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if int64(now) >= s.until.Load() {
		s.current = (s.current + 1) % slowWindows
		s.windows[s.current].n = 0
		s.until.Store(int64(now + slowWindow))
		s.floor.Store(int64(slowMin))
	}
	w := &s.windows[s.current]
	at := w.n
	if at == slowEach {
		at = w.quickest()
		if w.list[at].took >= took {
			return
		}
	} else {
		w.n++
	}
	w.list[at] = slowOne{end: now, took: took, op: q.op, client: q.client, object: q.object, done: *d}
	w.list[at].done.Name = strings.Clone(d.Name)
	if w.n == slowEach {
		s.floor.Store(int64(w.list[w.quickest()].took) + 1)
	}
}

func (w *window) quickest() int {
	at := 0
	for i := range w.list[:w.n] {
		if w.list[i].took < w.list[at].took {
			at = i
		}
	}
	return at
}

// recent are those of the last minute.
func (s *slow) recent(now time.Duration) (all []slowOne) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.windows {
		w := &s.windows[i]
		for _, one := range w.list[:w.n] {
			if now-one.end <= slowWindows*slowWindow {
				all = append(all, one)
			}
		}
	}
	return all
}
