package shm

import "time"

// brisk lets a waiter poll for a moment before it sleeps. Falling asleep and being woken costs ten
// times a round trip; polling costs a core. So, unless the queue's options say how long, it is done
// only while the peers answer briskly, by one waiter of a domain at a time, and given up at the
// first answer that keeps it waiting.
type brisk struct {
	since  time.Duration // when the present wait began, by clock; 0: nothing had to be waited for
	spun   bool          // it has polled its time
	streak int           // waits in a row that were over within spinMax

	// crowded: the peer came while this side had let go of its core, so they share one. Then it is
	// let go of after one turn and not after spinTurns, which would double every round trip.
	crowded bool
}

const (
	spinMax     = 50 * time.Microsecond // many round trips
	briskStreak = 3
	spinnersMax = 1
)

func (b *brisk) start() { b.since, b.spun = 0, false }

// end judges the wait, unless the queue's options say how long to poll.
func (q *cq) end() {
	switch {
	case q.since == 0 || q.opts.Spin != 0:
	case q.clock()-q.since < spinMax:
		q.streak++
	default:
		q.streak = 0
	}
}

// clock is quicker than time.Now.
func (q *cq) clock() time.Duration { return time.Since(q.d.opened) }

// spinTime is how long the present wait may poll.
func (q *cq) spinTime() time.Duration {
	switch {
	case q.opts.Spin > 0:
		return q.opts.Spin
	case q.opts.Spin < 0 || q.streak < briskStreak:
		return 0
	}
	return spinMax
}

// spin polls for who holds the role, and tells whether something came. The time of a wait is
// counted from its beginning, however often something comes that does not end it.
func (q *cq) spin() bool {
	if q.since == 0 && q.opts.Spin <= 0 {
		q.since = q.clock()
	}
	limit := q.spinTime()
	if limit == 0 || q.spun {
		return false
	}
	if q.opts.Spin == 0 {
		defer q.d.spinners.Add(-1)
		if q.d.spinners.Add(1) > spinnersMax {
			return false
		}
	}
	for i := 1; ; i++ {
		if q.watchAll(spinLooks) || q.hand.n > 0 || q.due.Load() {
			q.crowded = q.crowded && i > 1
			return true
		}
		if i%spinTurns != 0 && !q.crowded {
			continue
		}
		if q.since == 0 {
			q.since = q.clock()
		}
		if q.clock()-q.since > limit {
			q.spun = true
			return false
		}
		yield() // the peer may be waiting for this very core
		if q.watchAll(1) || q.hand.n > 0 || q.due.Load() {
			q.crowded = true // it was: the next time it is let in at once
			return true
		}
	}
}

// spinTurns is how often all rings are watched between two looks at the clock, some microseconds.
const spinTurns = 16

// spinLooks is how often one ring is looked at in a turn.
const spinLooks = 256

// watchAll looks at the rings of all endpoints, many times if there is only one.
func (q *cq) watchAll(looks int) bool {
	eps := *q.eps.Load()
	looks = max(1, looks/max(1, len(eps)))
	did := false
	for _, e := range eps {
		if e.watch(looks, &q.hand) {
			did = true
		}
	}
	return did
}
