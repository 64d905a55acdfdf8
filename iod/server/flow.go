package server

import (
	"math/bits"
	"time"

	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/msg"
)

// client is one of those who share a gate.
type client struct {
	key      clientKey
	running  int
	waiting  int
	requests int   // running and waiting
	load     int64 // bytes running
	wanted   int64 // bytes running and waiting
	flows    [msg.MaxLevels]flow

	since time.Duration     // it rests
	link  list.Link[client] // in gate.idle while it rests; in gate.spare
}

// flow is what waits of one client at one level.
type flow struct {
	client  *client
	tickets list.List[ticket]
	deficit int64           // bytes that it may still send in its turn
	turn    list.Link[flow] // in the round of the level
}

// level is one service level: the flows that wait, the first one is whose turn it is, and all their
// tickets by age, oldest first.
type level struct {
	round list.List[flow]
	byAge list.List[ticket]
}

// clientLocked finds a client, or makes it.
func (g *gate) clientLocked(k clientKey) *client {
	if c := g.clients[k]; c != nil {
		if c.link.In() {
			g.idle.Remove(&c.link)
		}
		return c
	}
	g.sweepLocked(g.now())
	c := g.spare.First()
	if c == nil {
		c = &client{}
		for i := range c.flows {
			c.flows[i].client = c
		}
	} else {
		g.spare.Remove(&c.link)
	}
	c.key = k
	g.clients[k] = c
	g.wants.add(0)
	g.spread.add(0)
	return c
}

// restLocked notes that a client has no request here any more.
func (g *gate) restLocked(c *client) {
	if c.requests == 0 {
		c.since = g.now()
		g.idle.PushLast(&c.link, c)
	}
}

// sweepLocked forgets the clients that rest for long.
func (g *gate) sweepLocked(now time.Duration) {
	for c := g.idle.First(); c != nil && now-c.since >= g.linger; c = g.idle.First() {
		g.idle.Remove(&c.link)
		delete(g.clients, c.key)
		g.wants.remove(0)
		g.spread.remove(0)
		g.spare.PushFirst(&c.link, c)
	}
}

// changeLocked counts that a client has more or fewer requests here, running or waiting.
func (g *gate) changeLocked(c *client, requests int, bytes int64) {
	g.wants.remove(c.requests)
	g.spread.remove(bits.Len64(uint64(c.wanted)))
	c.requests += requests
	c.wanted += bytes
	g.wants.add(c.requests)
	g.spread.add(bits.Len64(uint64(c.wanted)))
}

// leastLocked is how many requests the client has here that has the fewest.
func (g *gate) leastLocked() int {
	n, ok := g.wants.least()
	if !ok {
		return 0
	}
	return n
}

// leastBytesLocked is, rounded up to a power of two, how much the client wants that wants least.
func (g *gate) leastBytesLocked() int64 {
	n, ok := g.spread.least()
	if !ok {
		return 0
	}
	return 1 << n
}

// queueLocked makes a ticket wait: behind those of its client and level.
func (g *gate) queueLocked(t *ticket) {
	t.since = g.now()
	t.client.waiting++
	g.waiting++
	f, l := &t.client.flows[t.level], &g.levels[t.level]
	if f.tickets.Empty() {
		l.round.PushLast(&f.turn, f)
		g.some |= 1 << t.level
	}
	f.tickets.PushLast(&t.inFlow, t)
	l.byAge.PushLast(&t.inLevel, t)
}

// unqueueLocked ends the waiting of a ticket, for whatever reason.
func (g *gate) unqueueLocked(t *ticket) {
	t.client.waiting--
	g.waiting--
	f, l := &t.client.flows[t.level], &g.levels[t.level]
	f.tickets.Remove(&t.inFlow)
	l.byAge.Remove(&t.inLevel)
	if f.tickets.Empty() {
		f.deficit = 0
		l.round.Remove(&f.turn)
	}
	if l.round.Empty() {
		g.some &^= 1 << t.level
	}
}
