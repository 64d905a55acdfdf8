package progress

import "sync/atomic"

// Turn is the right to poll. It is free, or somebody has it, or it rests: then whoever owns what is
// polled sees to it. It is one word, because it changes hands twice in every round trip:
//
//	bits 0-1    2         3..63
//	| state   | watched | moves: counts the changes |
//
// watched: a Visitor will look. Who makes it so has to tell the Visitor.
type Turn struct {
	word atomic.Uint64
	seen uint64 // moves when the Visitor last looked; belongs to it
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

// Free tells whether nobody has the turn and it does not rest.
func (t *Turn) Free() bool { return t.word.Load()&turnState == turnFree }

// Resting tells whether it rests.
func (t *Turn) Resting() bool { return t.word.Load()&turnState == turnRests }

// Taken tells whether somebody has it.
func (t *Turn) Taken() bool { return t.word.Load()&turnState == turnTaken }

// Rest lets a turn that the caller has rest. The Visitor need not come again.
func (t *Turn) Rest() {
	for {
		w := t.word.Load()
		if t.word.CompareAndSwap(w, w&^(turnState|turnWatched)+turnRests+turnMove) {
			return
		}
	}
}

// Leave leaves the turn to whoever takes it next. When it is true the caller has to tell the
// Visitor of it.
func (t *Turn) Leave() (visit bool) {
	for {
		w := t.word.Load()
		if t.word.CompareAndSwap(w, w&^turnState|turnWatched+turnMove) {
			return w&turnWatched == 0
		}
	}
}

// Watch has the Visitor look at a turn that the caller has. When it is true the caller has to tell
// the Visitor.
func (t *Turn) Watch() (visit bool) {
	for {
		w := t.word.Load()
		if t.word.CompareAndSwap(w, w|turnWatched+turnMove) {
			return w&turnWatched == 0
		}
	}
}

// Left is what a Visitor finds.
type Left uint8

// What a Visitor may find.
const (
	InUse Left = iota // somebody has it, or it rests, and the Visitor need not come again
	Again             // it was used since the last visit, or is to be watched: look again
	Alone             // it was free all the time: the Visitor has taken it
)

// Look is a visit. watch tells whether a turn that somebody has is to be watched all the same.
func (t *Turn) Look(watch func() bool) Left {
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
			return Alone
		}
	}
}
