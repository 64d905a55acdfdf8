package shm

import "github.com/sluice-storage/sluice/errs"

// The word sleep of a side is 0 while it is awake, else the events that wake it and how. A side
// that causes an event that the other one sleeps for clears the word and wakes it. A side sets the
// word, checks again whether anything has happened, and only then sleeps; so no wake-up is lost.
const (
	wakeData  = 1 << iota // there is something in the ring
	wakeSpace             // there is room in the ring
	wakeDone              // Writes were carried out
	wakeLate              // the same, and the peer rests (fabric.FlagLater)

	byFutex  = 1 << 8 // wake the futex that the word is
	bySocket = 1 << 9 // send a note
)

// notify wakes the peer, if it sleeps for one of events.
func (e *endpoint) notify(events uint32) {
	word := &e.view.theirs.sleep
	if word.Load()&events == 0 {
		return
	}
	how := word.Swap(0)
	if how&byFutex != 0 {
		futexWake(word, false)
	}
	if how&bySocket != 0 {
		_ = e.raw.Write(e.doorbell)
	}
}

// arm announces that this side will sleep; it is false when there is something to do first.
func (e *endpoint) arm(how uint32) (word uint32, quiet bool) {
	e.rxMu.Lock()
	defer e.rxMu.Unlock()
	if e.gone || e.stopped.Load() { // finish wakes the waiters by completions
		return 0, true
	}
	defer e.guard().off()
	e.rest()
	word = wakeData | e.awaited.Load() | how
	e.view.mine.sleep.Store(word)
	if e.hasWork() || e.awaited.Load()&^word != 0 {
		e.view.mine.sleep.Store(0)
		return 0, false
	}
	return word, true
}

// What a peer does not wait for it is told when this side has nothing else to do: it would be woken
// for little, and is about to be for a request.

// lateBytes and lateWrites bound what is not told at once: the memory is in use meanwhile.
const (
	lateBytes  = 1 << 20
	lateWrites = 16
)

// restAfter is how often a poller looks in vain before it counts as one that has nothing to do:
// some 50 us.
const restAfter = 4096

// rest tells the peer what it did not have to know at once. It needs rxMu.
func (e *endpoint) rest() {
	if e.rx.untold > 0 {
		e.rx.untold = 0
		e.notify(wakeLate)
	}
}

// idled is called when a poller has looked in vain. It needs rxMu.
func (e *endpoint) idled(looks int) {
	if x := &e.rx; x.untold > looks {
		x.untold -= looks
	} else {
		e.rest()
	}
}

// disarm announces that this side is awake.
func (e *endpoint) disarm() {
	e.rxMu.Lock()
	defer e.rxMu.Unlock()
	if e.gone || e.stopped.Load() {
		return
	}
	defer e.guard().off()
	if word := &e.view.mine.sleep; word.Load() != 0 {
		word.Store(0)
	}
}

// hasWork tells whether the peer has done something that was not handled yet. It needs rxMu.
func (e *endpoint) hasWork() bool {
	x, theirs := &e.rx, e.view.theirs
	return x.in.there() && !x.blocked && !x.copying ||
		theirs.done.Load() != x.acked ||
		e.awaited.Load()&wakeSpace != 0 && theirs.head.Load() != e.fullAt.Load()
}

// armFor adds events to those that wake a sleeper of this side. It is true if one of them has
// happened already: then nobody wakes the sleeper for it. It needs mu.
func (e *endpoint) armFor(events uint32) bool {
	defer e.guard().off()
	word, theirs := &e.view.mine.sleep, e.view.theirs
	for {
		now := word.Load()
		if now == 0 { // a side that is awake checks before it sleeps
			return false
		}
		if now&events == events || word.CompareAndSwap(now, now|events) {
			break
		}
	}
	return events&(wakeDone|wakeLate) != 0 && theirs.done.Load() != e.acked ||
		events&wakeSpace != 0 && theirs.head.Load() != e.fullAt.Load()
}

// sayBye tells the peer why this side ends the connection; it reads that when it finds the socket
// closed.
func (e *endpoint) sayBye(kind errs.Kind) {
	defer e.guard().off()
	e.view.mine.bye.Store(uint32(kind))
}
