package capability

import (
	"cmp"
	"time"
)

// Times of a rotation.
const (
	// AskMax is how long servers that are up have to hear of a new key before it is signed with.
	AskMax = 30 * time.Second

	// RetireMargin is how much longer than the last capability that it has signed a key stays valid.
	// Servers take what has run out for refused a little too early rather than too late (Clock), so
	// that it need not be long.
	RetireMargin = 2 * time.Second
)

// Rotation decides, while a cluster has two keys, which of them signs and when the older one ends.
//
//	made ---- all servers that are up have it, or AskMax ---- TTL + RetireMargin ---- retired
//	the old one signs, both verify                            the new one signs, both verify
//
// So no server that is up is shown what a key has signed that it has not heard of, and nothing is
// refused that was signed in time. It keeps nothing that has to survive: begun anew at any moment
// it goes on more slowly. The zero value is ready. One goroutine uses it.
type Rotation struct {
	TTL    time.Duration // the longest life of a capability; 0: TTLMax
	Ask    time.Duration // 0: AskMax
	Margin time.Duration // 0: RetireMargin

	newest uint32
	heard  time.Time // when there was the newest key for the first time
	signs  bool      // the newest one does
	since  time.Time // when it began to
}

// Next takes the keys that are valid, the newest first, and whether all servers that are up have
// said that they know the newest. It returns them with the one that signs first, and whether the
// other one is to be retired.
func (r *Rotation) Next(now time.Time, valid Ring, all bool) (ring Ring, retire bool) {
	if len(valid) < 2 {
		r.newest = 0
		return valid, false
	}
	if r.newest != valid[0].Gen {
		r.newest, r.heard, r.signs = valid[0].Gen, now, false
	}
	ask, ttl, margin := cmp.Or(r.Ask, AskMax), cmp.Or(r.TTL, TTLMax), cmp.Or(r.Margin, RetireMargin)
	if !r.signs && (all || now.Sub(r.heard) >= ask) {
		r.signs, r.since = true, now
	}
	if !r.signs {
		return Ring{valid[1], valid[0]}, false
	}
	return valid, now.Sub(r.since) >= ttl+margin
}
