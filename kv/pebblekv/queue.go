package pebblekv

import (
	"context"
	"sync"
)

// queue counts the full memtables that wait for being written out, from pebble's events, so that
// commits can wait in front of pebble when the disk does not keep up.
type queue struct {
	mu    sync.Mutex
	full  int
	moved chan struct{} // closed and replaced when full shrinks
}

func newQueue() *queue { return &queue{moved: make(chan struct{})} }

// rotated: pebble started a log, and with it a memtable; the one before is full.
func (q *queue) rotated() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full++
}

// flushed: n memtables were written out.
func (q *queue) flushed(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = max(0, q.full-n)
	close(q.moved)
	q.moved = make(chan struct{})
}

// reset forgets what opening did: it leaves one memtable, which is not full.
func (q *queue) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = 0
}

// wait returns when there is room, or the caller gave up, or the store failed (closed failed).
func (q *queue) wait(ctx context.Context, failed <-chan struct{}) {
	for {
		q.mu.Lock()
		full, moved := q.full >= queuedMax, q.moved
		q.mu.Unlock()
		if !full {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		case <-failed:
			return
		}
	}
}
