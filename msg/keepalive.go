package msg

import "time"

// alive is what the sweep knows about the other side: a peer may be connected, with a provider that
// acknowledges everything, and still never answer. It belongs to the sweep's goroutine.
type alive struct {
	heard uint64    // messages of the peer, at the last sweep
	since time.Time // when the sweep last saw that change
	asked bool      // an inquiry has no answer yet
}

// The verdicts of a look at a peer.
const (
	peerFine  = iota
	peerAsk   // it has been silent for long: ask it whether it is there
	peerStuck // it was asked and does not say
)

// look judges a peer of which so many messages were heard.
func (a *alive) look(now time.Time, heard uint64, o *Options) (verdict int, silent time.Duration) {
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
