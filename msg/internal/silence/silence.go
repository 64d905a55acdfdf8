// Package silence judges peers by how long nothing was heard of them.
package silence

import "time"

// Watch is what is known about a peer, which may be connected, with a provider that acknowledges
// everything, and still never answer. It is not safe for concurrent use.
type Watch struct {
	heard uint64    // messages of the peer, when it was last looked at
	since time.Time // when that was last seen to change
	asked bool      // a ping has no answer yet
}

// Verdict is what to do about a peer.
type Verdict int

const (
	Fine  Verdict = iota
	Ask           // it has been silent for long: ask it whether it is there
	Stuck         // it was asked and does not answer
)

// Check judges a peer from which heard messages have come so far. It is asked when it was silent
// for the first time, and stuck when it was for the second one, too.
func (w *Watch) Check(now time.Time, heard uint64, first, second time.Duration) (
	v Verdict, silent time.Duration) {
	if heard != w.heard || w.since.IsZero() {
		w.heard, w.since, w.asked = heard, now, false
		return Fine, 0
	}
	silent = now.Sub(w.since)
	switch {
	case !w.asked && silent > first:
		w.asked = true
		w.since = now.Add(-first) // whoever looks late does not blame the peer
		return Ask, silent
	case w.asked && silent > first+second:
		return Stuck, silent
	}
	return Fine, silent
}
