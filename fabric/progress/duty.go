package progress

import "sync/atomic"

// Duty is the turn of a user's goroutines to wait in a completion queue: one of them polls for all.
// Which one is decided here, for callers and for servers alike:
//
//   - Who waits for a completion takes the duty if it is free, and polls until its own has come.
//     Nobody has to be woken for it.
//   - Who leaves the duty while others depend on it calls the standby, a goroutine of the user that
//     polls for them.
//   - Who serves requests polls and serves by turns, so that a request that comes alone is answered
//     without waking anybody. While handlers have been slow the standby polls during each of them.
//   - When nobody has polled for one to two visits the standby is called in any case: a handler
//     takes its time, or no caller is left to notice the end of the connection.
//
// The Queue below has a turn of its own, because many goroutines of a user that has no Duty may be
// in Wait. Safe for concurrent use.
type Duty struct {
	turn    Turn
	slow    atomic.Int32 // requests during which the standby polls from the start
	visits  *Visitor[*Duty]
	standby func() bool
}

// slowStays is for how many requests a handler that has waited makes others count as slow.
const slowStays = 64

// Open makes d ready; the caller has it. standby sees to it that some goroutine tries to take the
// duty soon, and does not block; it is false when there is nothing to poll any more.
func (d *Duty) Open(visits *Visitor[*Duty], standby func() bool) {
	d.visits, d.standby = visits, standby
	d.turn.Take()
}

// Take takes the duty if it is free.
func (d *Duty) Take() bool { return d.turn.Take() }

// Taken tells whether somebody polls.
func (d *Duty) Taken() bool { return d.turn.Taken() }

// Leave ends the caller's duty. others tells that somebody depends on it that it goes on.
func (d *Duty) Leave(others bool) {
	if d.turn.Leave() {
		d.visits.Add(d)
	}
	if others {
		d.standby()
	}
}

// Serve is Leave by a goroutine that serves a request and then tries to take the duty again.
func (d *Duty) Serve() {
	slow := d.slow.Load() > 0
	if slow {
		d.slow.Add(-1)
	}
	d.Leave(slow)
}

// Need is called by a goroutine that is about to wait for what polling brings, or for something
// that takes long, without polling itself.
func (d *Duty) Need() {
	if d.turn.Taken() {
		return
	}
	d.slow.Store(slowStays)
	d.standby()
}

// Look implements Visited.
func (d *Duty) Look() bool {
	switch d.turn.Look(unwatched) {
	case InUse:
		return false
	case Again:
		return true
	}
	d.turn.Leave() // it is visited already
	return d.standby()
}

// unwatched: who has the duty waits with its own context, and the Queue looks after that.
func unwatched() bool { return false }
