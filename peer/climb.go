package peer

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg"
)

// A connection that is not the best one that there could be, because a device was down, a socket
// was gone or a network was cut when it was made, is replaced when the better way works again: the
// pool asks for it in growing pauses (pool.go), Network.Better looks, and the pool lets what is
// under way on the old connection finish.

// way is how a connection came about.
type way struct {
	addr         string // as it was dialled
	instance     uint64 // of the server; 0: it was not asked
	provider, at string // what was taken
	steps        []Step
	known        fabric.Peer
	later        bool // a better way may work later
}

// wayOf is how a connection of Dial came about; nil for a dead one.
func (n *Network) wayOf(c *msg.Conn) *way {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ways[c]
}

// MayClimb tells whether there are better ways to the server of a connection than the one that was
// taken, which may work later.
func (n *Network) MayClimb(c *msg.Conn) bool {
	w := n.wayOf(c)
	return w != nil && w.later
}

// Better connects to the server of a connection by a better way than that one takes, and leaves the
// connection alone. nil, and the reason, or none: there is no better way now; MayClimb tells
// whether there may be one later.
func (n *Network) Better(ctx context.Context, c *msg.Conn) (*msg.Conn, error) {
	w := n.wayOf(c)
	if w == nil || !w.later {
		return nil, nil
	}
	places, err := parseAddress(w.addr, n.providers())
	if err != nil {
		return nil, err
	}
	k := climb{net: n, addr: w.addr, places: places, have: w}
	better, err := k.improve(ctx, c)
	if better == nil {
		n.recount(c, &k)
		return nil, err
	}
	n.report(&k, better)
	n.mu.Lock()
	n.climbed[better.Provider()]++
	n.mu.Unlock()
	n.log.Info("a better way to the peer works again", "peer", w.addr, "from", w.provider+" "+w.at,
		"to", better.Provider())
	return better, nil
}

// improve looks for a way that is better than that of c.
func (k *climb) improve(ctx context.Context, c *msg.Conn) (*msg.Conn, error) {
	k.steps = append(k.steps, k.net.missing...)
	base, better := k.net.base(), k.net.steps[:len(k.net.steps)-1]
	onBase := c.Domain() == base.domain
	k.base, k.baseAt = c, k.have.at
	spots := k.baseSpots()
	if onBase {
		spots = before(spots, k.have.at)
	}
	at := 0
	if len(spots) > 0 {
		b, i, err := k.reach(ctx, base, spots, nil)
		switch {
		case err == nil:
			k.base, k.baseAt, at = b, spots[i].at, i
		case !onBase: // nobody to ask; and what there is works
			k.later = true
			return nil, err
		default:
			k.failed(base, spots)
		}
	}
	own := k.base != c
	err := k.ask(ctx)
	if was := k.have.instance; err == nil && was != 0 && k.offers.instance != was {
		err = errs.Newf(errs.Conflict, "peer.Ladder", k.addr, "another server answers at %s", k.baseAt)
	}
	if err != nil {
		k.later = true
	} else if taken := k.above(ctx, better); taken != nil {
		if own {
			k.base.Close()
		}
		return taken, nil
	}
	switch {
	case own && onBase && err == nil: // a better network
		k.take(base, k.base, spots, at)
		return k.base, nil
	case own:
		k.base.Close()
	}
	return nil, err
}

// failed notes spots of which none worked.
func (k *climb) failed(s *step, spots []spot) {
	for _, x := range spots {
		if x.err != nil {
			k.later = k.later || mayPass(x.err)
			k.skip(s, x.at, x.err)
		}
	}
}

// recount notes what an attempt to find a better way has told.
func (n *Network) recount(c *msg.Conn, k *climb) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.ways[c]
	if w == nil {
		return
	}
	next := *w // others may be reading the old one
	next.later = k.later
	if len(k.steps) > len(n.missing) {
		next.steps = append(k.steps, Step{Provider: w.provider, Addr: w.at})
	}
	n.ways[c] = &next
	for _, s := range k.steps[len(n.missing):] {
		n.counts[LadderCount{Provider: s.Provider, Outcome: errs.KindOf(s.Err)}]++
	}
}

// Known is who is at the other side of a connection, and how that is known: of one that was reached
// by a token that is whom the token came from.
func (n *Network) Known(c *msg.Conn) fabric.Peer {
	if w := n.wayOf(c); w != nil {
		return w.known
	}
	return c.Peer()
}

// Climbed counts, by provider, the connections that have replaced worse ones.
func (n *Network) Climbed() map[string]uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[string]uint64, len(n.climbed))
	for name, count := range n.climbed {
		all[name] = count
	}
	return all
}

// Refused counts, by provider, the peers that were not let in.
func (n *Network) Refused() map[string]uint64 {
	all := map[string]uint64{}
	for i := range n.steps {
		if d, ok := n.steps[i].domain.(fabric.Refuser); ok {
			all[n.steps[i].caps.Provider] += d.Refusals()
		}
	}
	return all
}

// WhyNot are the reasons why a connection does not go by something better: steps above the one
// that it took, and places that are preferred to its own.
func (n *Network) WhyNot(c *msg.Conn) []Step {
	var all []Step
	steps := n.Ladder(c)
	for _, name := range Names() {
		for _, s := range steps {
			if s.Provider == name && s.Err != nil {
				all = append(all, s)
			}
		}
		if name == c.Provider() {
			break
		}
	}
	return all
}
