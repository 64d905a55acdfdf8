// Package member decides what state an I/O server or a host is in. It is told of heartbeats and of
// the time, and says what follows: it has no clock, reads and writes nothing, and knows neither
// names nor addresses. meta/store keeps what it decides.
//
// Read member.go: it is all there is.
package member

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Limits say what silence means.
type Limits struct {
	Slow time.Duration // after this a member is slow
	Down time.Duration // and after this it is down
}

// Beat is what a heartbeat says.
type Beat struct {
	Incarnation uint64 // 0: of one that does not count its starts
	Start       uint64 // random: tells two processes that have chosen the same incarnation apart
	Leaving     bool   // it ends
}

// Member is what is known of one.
type Member struct {
	Incarnation uint64
	Start       uint64
	State       meta.State // that was noted down last
	Heard       time.Time  // when its last heartbeat came, by a clock that is not set
}

// Hear judges a heartbeat that came at a moment, and returns the member as it is then; changed: its
// state, incarnation or start is another one.
//
// A start that is not the latest is errs.Stale, and so is a second process that has chosen the same
// incarnation: it has to choose a higher one. One that was removed is errs.NotFound, unless it has
// been started since, or does not count its starts: then somebody wants it back.
func (m Member) Hear(b Beat, at time.Time) (next Member, changed bool, err error) {
	switch {
	case m.State == 0: // nothing is known of it
	case b.Incarnation < m.Incarnation:
		return m, false, errs.Newf(errs.Stale, "meta.heartbeat", "",
			"it is of start %d, and start %d was heard of", b.Incarnation, m.Incarnation)
	case b.Incarnation == m.Incarnation && b.Start != m.Start:
		return m, false, errs.Newf(errs.Stale, "meta.heartbeat", "",
			"another process has begun as start %d", b.Incarnation)
	case m.State == meta.StateGone && b.Incarnation == m.Incarnation && b.Incarnation != 0:
		return m, false, errs.Newf(errs.NotFound, "meta.heartbeat", "", "it was removed")
	}
	next = Member{Incarnation: b.Incarnation, Start: b.Start, State: meta.StateUp, Heard: at}
	if b.Leaving {
		next.State = meta.StateLeaving
	}
	changed = next.State != m.State || next.Incarnation != m.Incarnation || next.Start != m.Start
	return next, changed, nil
}

// At is the state at a moment.
func (m *Member) At(now time.Time, l Limits) meta.State {
	silent := now.Sub(m.Heard)
	switch {
	case m.State == meta.StateGone:
		return meta.StateGone
	case silent > l.Down:
		return meta.StateDown
	case m.State == meta.StateLeaving:
		return meta.StateLeaving
	case silent > l.Slow:
		return meta.StateSlow
	}
	return meta.StateUp
}

// Due tells whether the state at a moment is not the one that was noted down.
func (m *Member) Due(now time.Time, l Limits) bool { return m.At(now, l) != m.State }

// Loaded is a member as the last process of who judges has noted it down. Nobody knows how long it
// was silent: whoever was there has all the time to be heard of again.
func Loaded(m Member, now time.Time) Member {
	m.Heard = now
	if m.State == meta.StateDown {
		m.Heard = time.Time{}
	}
	return m
}

// Excuse lets time pass without anybody being silent: who judges did not run.
func (m *Member) Excuse(d time.Duration) {
	if !m.Heard.IsZero() {
		m.Heard = m.Heard.Add(d)
	}
}
