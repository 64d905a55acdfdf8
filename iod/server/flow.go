package server

import (
	"math/bits"
	"time"

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

	resting    bool          // in gate.idle
	since      time.Duration // it rests
	prev, next *client       // in gate.idle; next also in gate.spare
}

// flow is what waits of one client at one level.
type flow struct {
	client      *client
	head, tail  *ticket
	deficit     int64 // bytes that it may still send in its turn
	left, right *flow // in the ring of the level
}

// level is one service level: the flows that wait in a ring, and all their tickets by age.
type level struct {
	ring             *flow // whose turn it is
	oldest, youngest *ticket
}

// idleList is the clients that have no request here but had one a moment ago, oldest first.
type idleList struct{ first, last *client }

func (l *idleList) add(c *client, now time.Duration) {
	c.resting, c.since = true, now
	c.prev, c.next = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
}

func (l *idleList) remove(c *client) {
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.resting, c.prev, c.next = false, nil, nil
}

// clientLocked finds a client, or makes it.
func (g *gate) clientLocked(k clientKey) *client {
	if c := g.clients[k]; c != nil {
		if c.resting {
			g.idle.remove(c)
		}
		return c
	}
	g.sweepLocked(g.now())
	c := g.spare
	if c == nil {
		c = &client{}
		for i := range c.flows {
			c.flows[i].client = c
		}
	} else {
		g.spare, c.next = c.next, nil
	}
	c.key = k
	g.clients[k] = c
	g.wants[0]++
	g.spread[0]++
	return c
}

// restLocked notes that a client has no request here any more.
func (g *gate) restLocked(c *client) {
	if c.requests == 0 {
		g.idle.add(c, g.now())
	}
}

// sweepLocked forgets the clients that rest for long.
func (g *gate) sweepLocked(now time.Duration) {
	for c := g.idle.first; c != nil && now-c.since >= g.linger; c = g.idle.first {
		g.idle.remove(c)
		delete(g.clients, c.key)
		g.wants[0]--
		g.spread[0]--
		c.next, g.spare = g.spare, c
	}
}

// changeLocked counts that a client has more or fewer requests here, running or waiting.
func (g *gate) changeLocked(c *client, requests int, bytes int64) {
	g.wants[min(c.requests, wantsMax)]--
	g.spread[bits.Len64(uint64(c.wanted))]--
	c.requests += requests
	c.wanted += bytes
	g.wants[min(c.requests, wantsMax)]++
	g.spread[bits.Len64(uint64(c.wanted))]++
}

// leastLocked is how many requests the client has here that has the fewest.
func (g *gate) leastLocked() int {
	for n, clients := range g.wants {
		if clients > 0 {
			return n
		}
	}
	return 0
}

// leastBytesLocked is, rounded up to a power of two, how much the client wants that wants least.
func (g *gate) leastBytesLocked() int64 {
	for n, clients := range g.spread {
		if clients > 0 {
			return 1 << n
		}
	}
	return 0
}

// queueLocked makes a ticket wait: behind those of its client and level.
func (g *gate) queueLocked(t *ticket) {
	t.since = g.now()
	t.client.waiting++
	g.waiting++
	f, l := &t.client.flows[t.level], &g.levels[t.level]
	if f.head == nil {
		f.head = t
		l.join(f)
		g.some |= 1 << t.level
	} else {
		f.tail.next = t
	}
	f.tail = t
	t.senior, l.youngest = l.youngest, t
	if t.senior == nil {
		l.oldest = t
	} else {
		t.senior.younger = t
	}
}

// unqueueLocked ends the waiting of a ticket, for whatever reason.
func (g *gate) unqueueLocked(t *ticket) {
	t.client.waiting--
	g.waiting--
	f, l := &t.client.flows[t.level], &g.levels[t.level]
	f.remove(t)
	if f.head == nil {
		f.deficit = 0
		l.part(f)
	}
	if t.senior == nil {
		l.oldest = t.younger
	} else {
		t.senior.younger = t.younger
	}
	if t.younger == nil {
		l.youngest = t.senior
	} else {
		t.younger.senior = t.senior
	}
	t.senior, t.younger = nil, nil
	if l.ring == nil {
		g.some &^= 1 << t.level
	}
}

func (f *flow) remove(t *ticket) {
	var before *ticket
	for x := f.head; x != t; x = x.next {
		before = x
	}
	if before == nil {
		f.head = t.next
	} else {
		before.next = t.next
	}
	if f.tail == t {
		f.tail = before
	}
	t.next = nil
}

// join puts a flow at the end of the round.
func (l *level) join(f *flow) {
	if l.ring == nil {
		f.left, f.right, l.ring = f, f, f
		return
	}
	f.left, f.right = l.ring.left, l.ring
	f.left.right, f.right.left = f, f
}

// part takes a flow out of the round.
func (l *level) part(f *flow) {
	if f.right == f {
		l.ring = nil
	} else {
		f.left.right, f.right.left = f.right, f.left
		if l.ring == f {
			l.ring = f.right
		}
	}
	f.left, f.right = nil, nil
}
