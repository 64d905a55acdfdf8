package tcp

import (
	"runtime"
	"time"
)

// coalescing lets requests that are posted at about the same time leave in one system call, which
// is most of what a small request costs. A poster that finds the socket free yields its core once,
// so that other goroutines that are ready to run can post too: an answer, or a commit, may have
// woken sixteen callers. It is tried only where posters have met at the socket lately: a lone
// poster would lose time, and another goroutine might take over the reading of its answer.
type coalescing struct {
	tries int // left before giving up
	skip  int // meetings to ignore, after a try took too long
}

const (
	coalesceTries = 4
	coalesceSkip  = 4096                   // meetings to ignore
	coalesceWait  = 200 * time.Microsecond // a longer yield: the cores have other work
	coalesceBytes = 16 << 10               // a larger request is worth its own system call
)

// met notes that a poster has found another one writing.
func (c *coalescing) met() {
	if c.skip > 0 {
		c.skip--
		return
	}
	c.tries = coalesceTries
}

// judge learns from a try.
func (c *coalescing) judge(came bool, took time.Duration) {
	switch {
	case took > coalesceWait:
		c.tries, c.skip = 0, coalesceSkip
	case came:
		c.tries = coalesceTries
	default:
		c.tries--
	}
}

// coalesceLocked yields the core, if that is worth it, before a single small request is written. It
// unlocks mu meanwhile; the socket counts as taken.
func (e *endpoint) coalesceLocked() {
	queue := &e.reqs.Posted
	if queue.Len() != 1 || (*queue.At(0)).Length >= coalesceBytes || e.coalescing.tries == 0 {
		return
	}
	e.busy = true
	e.mu.Unlock()
	began := time.Now()
	runtime.Gosched()
	took := time.Since(began)
	e.mu.Lock()
	e.busy = false
	e.coalescing.judge(queue.Len() > 1, took)
}
