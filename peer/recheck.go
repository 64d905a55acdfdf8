package peer

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
)

// A peer proves who it is when it connects. What it has shown may be denied later, or run out: then
// its connections are ended, those that it has climbed to by a token included. That is looked at
// when what this process believes has changed, and every minute besides, because time passes; no
// request waits for it, or costs more.

// recheckEvery is how often certificates are looked at that nobody has denied.
const recheckEvery = time.Minute

// watchTrust ends connections whose peers are not believed any more, until ctx ends.
func (n *Network) watchTrust(ctx context.Context, changed func() <-chan struct{}) {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		next := changed() // before it is looked, so that nothing is missed
		n.Recheck()
		select {
		case <-ctx.Done():
			return
		case <-next:
		case <-tick.C:
		}
	}
}

// Recheck ends the connections whose peers are not believed any more, and tells how many there
// were.
func (n *Network) Recheck() int {
	ended := n.Node.Recheck()
	n.mu.Lock()
	climbed := map[*msg.Conn]func() error{} // whose own peer is only known by a token
	for c, w := range n.ways {
		if w.known.Recheck != nil && c.Peer().Recheck == nil {
			climbed[c] = w.known.Recheck
		}
	}
	n.mu.Unlock()
	for c, ask := range climbed {
		if c.Err() != nil {
			continue
		}
		if err := ask(); err != nil && errs.KindOf(err) != errs.Again {
			c.Disbelieve(err)
			ended++
		}
	}
	n.mu.Lock()
	n.revoked += uint64(ended)
	n.mu.Unlock()
	return ended
}

// Revoked counts the connections that were ended because their peers are not believed any more.
func (n *Network) Revoked() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.revoked
}
