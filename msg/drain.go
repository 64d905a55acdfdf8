package msg

import (
	"context"
	"time"
)

// drainLooks is how often Drain looks within the time that a connection has to be unused.
const drainLooks = 4

// Drain closes a connection that nobody is given any more, when nobody needs it any more: requests
// go on as if nothing had happened, new ones too, of callers that had got hold of it before, until
// there was none for as long as quiet says. Who comes even later gets errs.Shutdown, as from a
// server that is about to end, and must ask for another connection. When ctx ends it closes the
// connection at once.
func (c *Conn) Drain(ctx context.Context, quiet time.Duration) {
	defer c.Close()
	tick := time.NewTicker(max(quiet/drainLooks, time.Millisecond))
	defer tick.Stop()
	passed, unused := c.credits.Usage().Passed, 0
	for unused < drainLooks || !c.retire() {
		select {
		case <-tick.C:
		case <-c.done:
			return
		case <-ctx.Done():
			return
		}
		u := c.credits.Usage()
		if u.Count > 0 || u.Waiting > 0 || u.Passed != passed {
			passed, unused = u.Passed, 0
			continue
		}
		unused++
	}
}

// retire refuses new requests from now on, unless one is under way.
func (c *Conn) retire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.free) < len(c.slots) {
		return false
	}
	c.draining = true
	return true
}
