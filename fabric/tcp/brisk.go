package tcp

import (
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// brisk lets a waiter that reads its own socket poll it for a moment before it sleeps. Falling
// asleep and being woken costs more than a round trip on one host; polling costs a core. So it is
// done only while the peer answers briskly, by one reader of a domain at a time, and given up at
// the first answer that keeps it waiting.
type brisk struct {
	allowed bool          // the present read is a waiter's
	wanted  time.Duration // how long that waiter wants to poll; 0: as seems good
	since   time.Time     // when the present wait began; zero: nothing had to be waited for
	streak  int           // waits in a row that were over within spinMax
}

const (
	spinMax     = 50 * time.Microsecond // a few round trips on one host
	briskStreak = 3
	spinnersMax = 1
)

// allow says that the next wait is a waiter's, who has nothing better to do. spin is what its queue
// was told, see fabric.CQOptions.
func (b *brisk) allow(spin time.Duration) {
	b.allowed, b.wanted, b.since = spin >= 0, spin, time.Time{}
}

// begin tells whether to poll, at the beginning of a wait. Who polls counts as a spinner.
func (b *brisk) begin(spinners *atomic.Int32) bool {
	if !b.allowed || !b.since.IsZero() {
		return false // a second time in one wait: there was something, but not for long
	}
	b.since = time.Now()
	if b.wanted == 0 && b.streak < briskStreak {
		return false
	}
	if spinners.Add(1) > spinnersMax && b.wanted == 0 {
		spinners.Add(-1)
		return false
	}
	return true
}

// on tells whether to go on polling.
func (b *brisk) on() bool {
	limit := spinMax
	if b.wanted > 0 {
		limit = b.wanted
	}
	return time.Since(b.since) < limit
}

// end judges the wait.
func (b *brisk) end() {
	b.allowed = false
	switch {
	case b.since.IsZero():
	case time.Since(b.since) < spinMax:
		b.streak++
	default:
		b.streak = 0
	}
}

// yield lets another thread have the core, if one waits for it.
func yield() { _, _, _ = syscall.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
