package shm

import "github.com/sluice-storage/sluice/errs"

// What may wake a side that sleeps, and how it wants to be woken: the word sleep of a side is 0
// while it is awake, else a sum of these. Who causes an event that the other side sleeps for clears
// the word and wakes it. A side writes the word, looks again whether anything has happened, and
// only then sleeps; so nothing is missed.
const (
	wakeData  = 1 << iota // there is something in the ring
	wakeSpace             // there is room in the ring
	wakeDone              // Writes were carried out

	byFutex  = 1 << 8 // wake the futex that the word is
	bySocket = 1 << 9 // send a note
)

// notify tells the peer of events, if it sleeps for one of them.
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
		_ = e.raw.Write(e.bell)
	}
}

// arm says that this side will sleep; it is false when there is something to do after all.
func (e *endpoint) arm(how uint32) (word uint32, quiet bool) {
	e.rxMu.Lock()
	defer e.rxMu.Unlock()
	if e.gone || e.stopped.Load() { // its end wakes everybody in its own way
		return 0, true
	}
	defer e.guard().off()
	word = wakeData | e.needs.Load() | how
	e.view.mine.sleep.Store(word)
	if e.stirred() || e.needs.Load()&^word != 0 {
		e.view.mine.sleep.Store(0)
		return 0, false
	}
	return word, true
}

// disarm says that this side is awake.
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

// stirred tells whether the peer has done something that nobody has looked at. It needs rxMu.
func (e *endpoint) stirred() bool {
	x, theirs := &e.rx, e.view.theirs
	return x.in.there() && !x.blocked ||
		theirs.done.Load() != x.acked ||
		e.needs.Load()&wakeSpace != 0 && theirs.head.Load() != e.stuckAt.Load()
}

// ask adds events to those that a sleeper of this side is woken for. It is true if one of them has
// happened already, which the sleeper does not know then. It runs under mu.
func (e *endpoint) ask(needs uint32) bool {
	defer e.guard().off()
	word, theirs := &e.view.mine.sleep, e.view.theirs
	for {
		now := word.Load()
		if now == 0 { // who is awake looks before it sleeps
			return false
		}
		if now&needs == needs || word.CompareAndSwap(now, now|needs) {
			break
		}
	}
	return needs&wakeDone != 0 && theirs.done.Load() != e.acked ||
		needs&wakeSpace != 0 && theirs.head.Load() != e.stuckAt.Load()
}

// sayBye tells the peer how this side ends, for when it finds the socket closed.
func (e *endpoint) sayBye(kind errs.Kind) {
	defer e.guard().off()
	e.view.mine.bye.Store(uint32(kind))
}
