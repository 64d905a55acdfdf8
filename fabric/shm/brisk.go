package shm

import "time"

// brisk lets a waiter poll for a moment before it sleeps. Falling asleep and being woken costs ten
// times a round trip; polling costs a core. So, unless the queue's options say how long, it is done
// only while the peers answer briskly, by one waiter of a domain at a time, and given up at the
// first answer that keeps it waiting.
type brisk struct {
	since  time.Time // when the present wait began; zero: nothing had to be waited for
	spun   bool      // it has polled its time
	streak int       // waits in a row that were over within spinMax
}

const (
	spinMax     = 50 * time.Microsecond // many round trips
	briskStreak = 3
	spinnersMax = 1
)

func (b *brisk) start() { b.since, b.spun = time.Time{}, false }

// end judges the wait.
func (b *brisk) end() {
	switch {
	case b.since.IsZero():
	case time.Since(b.since) < spinMax:
		b.streak++
	default:
		b.streak = 0
	}
}

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
	if q.since.IsZero() {
		q.since = time.Now()
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
		if q.advance() || q.due.Load() {
			return true
		}
		if i%8 != 0 || i == 8 {
			continue
		}
		if time.Since(q.since) > limit {
			q.spun = true
			return false
		}
		yield() // the peer may be waiting for this very core
	}
}
