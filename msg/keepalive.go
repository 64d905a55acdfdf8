package msg

import "time"

// alive is what the sweep knows about the peer, which may be connected, with a provider that
// acknowledges everything, and still never answer. It belongs to the sweep's goroutine.
type alive struct {
	heard uint64    // messages of the peer, at the last sweep
	since time.Time // when the sweep last saw that change
	asked bool      // a ping has no answer yet
}

// The verdicts of check.
const (
	peerFine  = iota
	peerAsk   // it has been silent for long: ask it whether it is there
	peerStuck // it was asked and does not answer
)

// check judges a peer from which heard messages have come so far.
func (a *alive) check(now time.Time, heard uint64, o *Options) (verdict int, silent time.Duration) {
	if heard != a.heard || a.since.IsZero() {
		a.heard, a.since, a.asked = heard, now, false
		return peerFine, 0
	}
	silent = now.Sub(a.since)
	switch {
	case !a.asked && silent > o.KeepAlive:
		a.asked = true
		a.since = now.Add(-o.KeepAlive) // a sweep that comes late is not the peer's fault
		return peerAsk, silent
	case a.asked && silent > o.KeepAlive+o.PeerTimeout:
		return peerStuck, silent
	}
	return peerFine, silent
}
