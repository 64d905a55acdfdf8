package msg

import "github.com/sluice-storage/sluice/errs"

// Recheck asks anew about the peers of all connections, both kinds, and ends those whose peer is
// not believed any more (fabric.Peer.Recheck): a certificate was denied, or has run out. It returns
// how many it has ended. Nothing of it is on the way of a request.
func (n *Node) Recheck() (ended int) {
	n.mu.Lock()
	links := make([]member, 0, len(n.links))
	for l := range n.links {
		links = append(links, l)
	}
	n.mu.Unlock()
	for _, l := range links {
		if l.recheck() {
			ended++
		}
	}
	return ended
}

// recheck ends a link whose peer is not believed any more, and tells whether it did.
func (l *link) recheck() bool {
	ask := l.ep.Peer().Recheck
	if ask == nil || l.over.Load() {
		return false
	}
	err := ask()
	if err == nil || errs.KindOf(err) == errs.Again { // who decides cannot tell now
		return false
	}
	l.disbelieve(err)
	return true
}

// disbelieve ends a link whose peer is not believed any more.
func (l *link) disbelieve(why error) {
	l.node.refused.Warn(l.peerAddr, "connection ended: its peer is not believed any more", "link",
		l.name, "peer name", l.ep.Peer().Name, "why", why)
	l.fail(errs.New(errs.Perm, "msg", l.name, why))
}

// Disbelieve ends the connection, without waiting for its end, because its server is not believed
// any more, for a reason that the connection itself does not know of: see Node.Recheck.
func (c *Conn) Disbelieve(why error) { c.disbelieve(why) }
