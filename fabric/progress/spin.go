package progress

import (
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/fabric"
)

// Spinning. Falling asleep and being woken costs more than a round trip on one host; spinning costs
// a core. So, unless the queue's options say how long, a waiter spins only while the peer answers
// quickly, one waiter of a domain at a time, and gives up at the first answer that is late.

const (
	spinMax     = 50 * time.Microsecond // several round trips on one host
	spinStreak  = 3                     // quick answers in a row that make spinning worth it
	spinnersMax = 1
)

// Spinners counts the waiters that spin in a domain.
type Spinners struct{ n atomic.Int32 }

// Pace is how often a source is looked at while a waiter spins.
type Pace struct {
	Looks int // in one Poll
	Polls int // between two looks at the clock
}

// spin is what a queue knows about its waits. It belongs to the poller.
type spin struct {
	pace   Pace
	wanted time.Duration // fabric.CQOptions.Spin
	others *Spinners
	opened time.Time // the clock's zero: time.Since is quicker than time.Now

	began  bool          // the present wait has found nothing at least once
	spent  bool          // it may not spin, or not any more
	counts bool          // it counts as one of others
	since  time.Duration // when it began, by clock; 0: the clock was not looked at
	polls  int           // in vain, since the clock was looked at
	yields int
	fresh  bool // the core was yielded just before the last poll

	streak int // waits in a row that were over within spinMax

	// shares: the peer answered while this side had yielded its core, so they share one. Then it
	// is yielded after each poll; spinning for longer would delay the very answer.
	shares bool
}

func (s *spin) open(opts fabric.CQOptions, pace Pace, others *Spinners) {
	s.wanted, s.pace, s.others, s.opened = opts.Spin, pace, others, time.Now()
}

func (s *spin) clock() time.Duration { return time.Since(s.opened) }

// begin begins a wait.
func (s *spin) begin() {
	s.began, s.spent, s.since, s.polls, s.yields, s.fresh = false, false, 0, 0, 0, false
}

// paid tells, at the end of a wait, whether it was spent spinning and never slept.
func (s *spin) paid() bool { return s.began && !s.spent }

// end ends a wait and learns from it.
func (s *spin) end() {
	if s.counts {
		s.others.n.Add(-1)
		s.counts = false
	}
	if !s.began { // nothing had to be waited for
		return
	}
	if s.wanted == 0 {
		if s.clock()-s.since < spinMax {
			s.streak++
		} else {
			s.streak = 0
		}
	}
	if !s.spent && (s.fresh || s.yields == 0) {
		s.shares = s.fresh
	}
}

// discourage forgets that answers came quickly.
func (s *spin) discourage() { s.streak = 0 }

// more tells, after a poll that found nothing, whether to poll again rather than sleep.
func (s *spin) more() bool {
	if !s.began {
		s.began, s.spent = true, !s.may()
		if s.wanted <= 0 {
			s.since = s.clock()
		}
	}
	if s.spent {
		return false
	}
	if s.polls++; s.fresh || s.polls < s.pace.Polls && !s.shares {
		s.fresh = false
		return true
	}
	s.polls = 0
	if now := s.clock(); s.since == 0 {
		s.since = now
	} else if now-s.since > s.limit() {
		s.spent = true
		return false
	}
	yield() // the peer may be waiting for this very core
	s.yields++
	s.fresh = true
	return true
}

// may tells whether the present wait may spin at all.
func (s *spin) may() bool {
	switch {
	case s.wanted != 0:
		return s.wanted > 0
	case s.streak < spinStreak:
		return false
	}
	if s.others.n.Add(1) > spinnersMax {
		s.others.n.Add(-1)
		return false
	}
	s.counts = true
	return true
}

func (s *spin) limit() time.Duration {
	if s.wanted > 0 {
		return s.wanted
	}
	return spinMax
}

// looks is how often the next poll looks: not at all where Arm and Sleep come next, which look too.
func (s *spin) looks() int {
	switch {
	case !s.began || s.spent:
		return 0
	case s.fresh:
		return 1
	}
	return s.pace.Looks
}

// yield lets another thread have the core, if one waits for it.
func yield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
