package index

import (
	"context"
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/internal/wait"
)

// RangeLock says that somebody is at work between cache and backing on some units of an object:
// fills share, a publication excludes. So a fill never reads what a publication is writing, and
// two publications reach backing and cache in the same order. Hits and loans need no range lock:
// nobody waits for a reader.
//
// Range locks are granted in the order in which they were asked for, each as soon as no earlier
// one that it conflicts with is left. Everybody holds one at a time and all memory that he needs
// before, so that they cannot be waited for in a circle.
type RangeLock struct {
	Spans  []Span // ascending, apart from each other
	Shared bool

	granted bool
	losses  uint64 // of the object, when the lock was granted
	waiter  wait.Waiter
}

// Reset makes a lock that is over ready for the next use.
func (l *RangeLock) Reset() { *l = RangeLock{Spans: l.Spans[:0], waiter: l.waiter} }

// Add locks another unit, which is not below those that were added before.
func (l *RangeLock) Add(unit int64) {
	if n := len(l.Spans); n > 0 && unit <= l.Spans[n-1].Last+1 {
		l.Spans[n-1].Last = max(l.Spans[n-1].Last, unit)
		return
	}
	l.Spans = append(l.Spans, Span{unit, unit})
}

// Span is a run of units, both ends included.
type Span struct{ First, Last int64 }

// conflicts walks the two ascending lists side by side.
func (l *RangeLock) conflicts(m *RangeLock) bool {
	if l.Shared && m.Shared {
		return false
	}
	for i, j := 0, 0; i < len(l.Spans) && j < len(m.Spans); {
		switch {
		case l.Spans[i].Last < m.Spans[j].First:
			i++
		case m.Spans[j].Last < l.Spans[i].First:
			j++
		default:
			return true
		}
	}
	return false
}

// rangeLocks are those of one object, granted and waiting, in the order in which they were asked
// for.
type rangeLocks []*RangeLock

// lock waits for the grant, without mu. It fails with the context's error, and then nothing is
// locked.
func (q *rangeLocks) lock(ctx context.Context, mu sync.Locker, l *RangeLock) error {
	l.granted = l.freeOf(*q)
	*q = append(*q, l)
	if l.granted {
		return nil
	}
	l.waiter.Arm()
	mu.Unlock()
	woken, err := l.waiter.Wait(ctx)
	mu.Lock()
	switch {
	case woken:
		return err
	case l.granted:
		return l.waiter.Woken()
	default:
		q.unlock(l)
		return ctx.Err()
	}
}

// unlock ends a lock, granted or not, and grants those behind it that can be.
func (q *rangeLocks) unlock(l *RangeLock) {
	i := slices.Index(*q, l)
	*q = slices.Delete(*q, i, i+1)
	for i, waiting := range *q {
		if !waiting.granted && waiting.freeOf((*q)[:i]) {
			waiting.granted = true
			waiting.waiter.Wake(nil)
		}
	}
}

func (l *RangeLock) freeOf(earlier []*RangeLock) bool {
	for _, e := range earlier {
		if l.conflicts(e) {
			return false
		}
	}
	return true
}
