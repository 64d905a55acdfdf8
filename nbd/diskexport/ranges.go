package diskexport

import (
	"slices"
	"sync"
)

// Writes of one class go on side by side, whatever they overlap: each byte is one writer's.
// Writes of different classes must not meet in a page, because the kernel keeps direct I/O and
// page cache in step only for those who do not: a page that is read for a write through the page
// cache while a direct write to another part of it is under way would bring the old bytes back. A
// write that reads a block, changes a part of it and writes it again is alone.
type class uint8

const (
	directly class = iota // whole blocks, by direct I/O
	paged                 // through the page cache
	alone                 // reads and writes again, or changes allocation
)

// heldRange is a range of the disk, in whole pages, that somebody writes.
type heldRange struct {
	from, to int64
	class    class
}

// ranges are the writes under way on a disk. There are as many as requests under way at most, a few
// dozen, so a list is fast enough.
type ranges struct {
	mu      sync.Mutex
	changed sync.Cond
	held    []*heldRange
	waiters int
}

func (r *ranges) init() { r.changed.L = &r.mu }

// pagesOf is a range in whole pages.
func pagesOf(off, length int64, c class) heldRange {
	return heldRange{off &^ (blockBytes - 1), (off + length + blockBytes - 1) &^ (blockBytes - 1), c}
}

// lock waits until no write of another class, or one that is alone, overlaps the range. Who waits
// holds no other range.
func (r *ranges) lock(h *heldRange, off, length int64, c class) {
	*h = pagesOf(off, length, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.conflictLocked(h) {
		r.waiters++
		r.changed.Wait()
		r.waiters--
	}
	r.held = append(r.held, h)
}

// lockAll is lock for several ranges of one class, which are held from the same moment on.
func (r *ranges) lockAll(list []*heldRange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for slices.ContainsFunc(list, r.conflictLocked) {
		r.waiters++
		r.changed.Wait()
		r.waiters--
	}
	r.held = append(r.held, list...)
}

func (r *ranges) conflictLocked(h *heldRange) bool {
	for _, o := range r.held {
		if o.from < h.to && h.from < o.to && (o.class != h.class || h.class == alone) {
			return true
		}
	}
	return false
}

func (r *ranges) unlock(h *heldRange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, o := range r.held {
		if o == h {
			last := len(r.held) - 1
			r.held[i] = r.held[last]
			r.held[last] = nil
			r.held = r.held[:last]
			break
		}
	}
	if r.waiters > 0 {
		r.changed.Broadcast()
	}
}
