package pebblekv

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/internal/wait"
)

// firstMemtableBytes is what pebble starts with; each memtable is twice the one before, up to the
// configured size.
const firstMemtableBytes = 256 << 10

// queue follows the full memtables that wait for being written out, by pebble's events, so that
// commits can wait in front of pebble when the disk does not keep up.
//
// It counts bytes, not memtables: pebble leaves small ones waiting until they are half a memtable
// together. Once the limit here is reached, a flush is under way for long.
type queue struct {
	size int // of a memtable, at most

	mu      sync.Mutex
	active  int        // size of the one that is being filled
	full    []int      // sizes of those that wait, the oldest first
	bytes   int        // sum of full
	failed  bool       // nothing is written out any more
	commits wait.Queue // that wait for bytes to shrink
}

func newQueue(memtableBytes int) *queue {
	return &queue{size: memtableBytes, active: firstMemtableBytes}
}

// rotated: pebble started a log, and with it a memtable; the one before is full.
func (q *queue) rotated() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = append(q.full, q.active)
	q.bytes += q.active
	q.active = min(2*q.active, q.size)
}

// flushed: the n oldest memtables were written out.
func (q *queue) flushed(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; n > 0 && len(q.full) > 0; n-- {
		q.bytes -= q.full[0]
		q.full = q.full[1:]
	}
	q.commits.WakeAll()
}

// reset forgets what opening did: it leaves one memtable, which is not full.
func (q *queue) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full, q.bytes = nil, 0
}

// fail ends all waits, now and later: the store takes no changes any more, and will say so.
func (q *queue) fail() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = true
	q.commits.WakeAll()
}

// wait returns when there is room, or the caller gave up, or the store failed.
func (q *queue) wait(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.bytes >= queuedMax*q.size && !q.failed {
		if q.commits.Wait(ctx, &q.mu) != nil {
			return
		}
	}
}
