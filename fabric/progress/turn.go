package progress

import "sync/atomic"

// Turn is the right to poll: a lock that is only ever tried, never waited for. It is free, or
// somebody holds it, or it rests: then the provider polls in the background. It is one word,
// because it changes hands twice in every round trip:
//
//	bits 0-1    2         3..63
//	| state   | watched | moves: counts the changes |
//
// watched: a Watchdog will check. Whoever sets the bit has to add the turn to the Watchdog.
type Turn struct {
	word atomic.Uint64
	seen uint64 // moves at the last check; belongs to the Watchdog
}

const (
	turnFree uint64 = iota
	turnTaken
	turnRests

	turnState   = 3
	turnWatched = 4
	turnMove    = 8
)

// change replaces the state from by to, unless it is another one.
func (t *Turn) change(from, to uint64) bool {
	for {
		w := t.word.Load()
		if w&turnState != from {
			return false
		}
		if t.word.CompareAndSwap(w, w&^turnState+to+turnMove) {
			return true
		}
	}
}

// Take takes the turn if it is free.
func (t *Turn) Take() bool { return t.change(turnFree, turnTaken) }

// Resume takes the turn if it rests.
func (t *Turn) Resume() bool { return t.change(turnRests, turnTaken) }

// Free tells whether nobody holds the turn and it does not rest.
func (t *Turn) Free() bool { return t.word.Load()&turnState == turnFree }

// Resting tells whether it rests.
func (t *Turn) Resting() bool { return t.word.Load()&turnState == turnRests }

// Taken tells whether somebody holds it.
func (t *Turn) Taken() bool { return t.word.Load()&turnState == turnTaken }

// Rest lets a turn that the caller holds rest. The Watchdog need not check it any more.
func (t *Turn) Rest() {
	for {
		w := t.word.Load()
		if t.word.CompareAndSwap(w, w&^(turnState|turnWatched)+turnRests+turnMove) {
			return
		}
	}
}

// Leave releases the turn. When it is true the caller has to add it to the Watchdog.
func (t *Turn) Leave() (add bool) {
	for {
		w := t.word.Load()
		if t.word.CompareAndSwap(w, w&^turnState|turnWatched+turnMove) {
			return w&turnWatched == 0
		}
	}
}

// Watch has a turn that the caller holds checked. When it is true the caller has to add it to the
// Watchdog.
func (t *Turn) Watch() (add bool) {
	for {
		w := t.word.Load()
		if t.word.CompareAndSwap(w, w|turnWatched+turnMove) {
			return w&turnWatched == 0
		}
	}
}

// Use is what a check finds.
type Use uint8

// What a check may find.
const (
	InUse Use = iota // somebody holds it, or it rests, and it need not be checked any more
	Again            // it was used since the last check, or is to be watched: check again
	Idle             // it was free all the time: the Watchdog has taken it
)

// Check is one check by the Watchdog. watch tells whether a turn that somebody holds is to be
// watched all the same.
func (t *Turn) Check(watch func() bool) Use {
	for {
		w := t.word.Load()
		switch {
		case w&turnState != turnFree:
			if watch() {
				return Again
			}
			if t.word.CompareAndSwap(w, w&^turnWatched) {
				return InUse
			}
		case w/turnMove != t.seen:
			t.seen = w / turnMove
			return Again
		case t.word.CompareAndSwap(w, w+turnTaken+turnMove):
			return Idle
		}
	}
}
