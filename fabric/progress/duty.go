package progress

import "sync/atomic"

// Duty decides which of a user's goroutines waits in a completion queue and polls for all of them
// (the pattern of leader and followers), for callers and for servers alike:
//
//   - A goroutine that waits for a completion takes the duty if it is free, and polls until its own
//     completion has come. Nobody has to be woken for it.
//   - A goroutine that leaves the duty while others depend on it calls the standby, a goroutine of
//     the user that polls for them.
//   - A goroutine that serves requests polls and serves by turns, so that a request that comes
//     alone is answered without waking anybody. While handlers have been slow the standby polls
//     during each of them.
//   - When nobody has polled for one to two periods of the Watchdog the standby is called in any
//     case: a handler takes its time, or no caller is left to notice the end of the connection.
//
// A Queue has a Turn of its own, because many goroutines of a user that has no Duty may be in Wait.
// Safe for concurrent use.
type Duty struct {
	turn     Turn
	slow     atomic.Int32 // requests during which the standby polls from the start
	watchdog *Watchdog[*Duty]
	standby  func() bool
	pressing func() bool
}

// slowRequests is how many requests count as slow after a handler that has waited.
const slowRequests = 64

// Open makes d ready; the caller has it. standby makes some goroutine try to take the duty soon,
// and does not block; it is false when there is nothing to poll any more. pressing tells whether
// somebody depends on its being called soon: others who wait than those who poll, or requests that
// a handler may keep waiting without saying so.
func (d *Duty) Open(watchdog *Watchdog[*Duty], standby, pressing func() bool) {
	d.watchdog, d.standby, d.pressing = watchdog, standby, pressing
	d.turn.Take()
}

// Pressing implements Watched.
func (d *Duty) Pressing() bool { return d.pressing() }

// Take takes the duty if it is free.
func (d *Duty) Take() bool { return d.turn.Take() }

// Taken tells whether somebody polls.
func (d *Duty) Taken() bool { return d.turn.Taken() }

// Leave ends the caller's duty. others tells that somebody depends on further polling.
func (d *Duty) Leave(others bool) {
	if d.turn.Leave() {
		d.watchdog.Add(d)
	}
	if others {
		d.standby()
	}
}

// Serve is Leave for a goroutine that serves a request and then tries to take the duty again.
func (d *Duty) Serve() {
	slow := d.slow.Load() > 0
	if slow {
		d.slow.Add(-1)
	}
	d.Leave(slow)
}

// EnsurePolling is called by a goroutine that is about to wait for a completion, or for something
// that takes long, without polling itself.
func (d *Duty) EnsurePolling() {
	if d.turn.Taken() {
		return
	}
	d.slow.Store(slowRequests)
	d.standby()
}

// Check implements Watched.
func (d *Duty) Check() bool {
	switch d.turn.Check(unwatched) {
	case InUse:
		return false
	case Again:
		return true
	}
	d.turn.Leave() // the watchdog has it already
	return d.standby()
}

// unwatched: the goroutine that has the duty waits with its own context, which the Queue watches.
func unwatched() bool { return false }
