package gate

import (
	"math/bits"
	"time"

	"github.com/sluice-storage/sluice/internal/list"
)

// Share divides a gate fairly among clients. Waiting requests are served by deficit round robin, so
// that each client gets as many bytes. Each of n clients has at most 1/(n+1) of the gate inside, so
// that there is room for the next one. A client may always have one request inside.
type Share struct {
	// Queue is how many requests of one client may wait; more are refused with errs.Again.
	Queue int

	// Linger is how long a client counts as present after its last request.
	Linger time.Duration

	// Even is for a gate to a shared device, where a client with more requests inside gets more of the
	// device: no client has more inside than the client that wants least; but each may always have
	// EvenCount requests and EvenBytes inside.
	Even      bool
	EvenCount int
	EvenBytes int64
}

// Client names a client of a gate: by a kind of numbers, which the user defines, and a number.
type Client struct{ Kind, ID uint64 }

// clients are the clients of a gate: with Share all, with Turns those that wait. Guarded by
// Gate.mu.
type clients struct {
	gate  *Gate
	share Share

	all    map[Client]*client
	idle   list.List[client] // present, but without requests, oldest first
	spare  list.List[client] // for reuse
	wants  tally             // clients by the number of requests that they have here
	spread tally             // clients by the logarithm of the bytes that they have here
}

// client is a client of a gate.
type client struct {
	name    Client
	count   int   // requests inside
	bytes   int64 // inside
	waiting int

	requests int   // inside and waiting
	wanted   int64 // bytes of these

	flows [MaxLevels]flow

	since time.Duration     // it is idle
	link  list.Link[client] // in clients.idle or clients.spare
}

// find finds a client, or makes it.
func (s *clients) find(name Client) *client {
	if c := s.all[name]; c != nil {
		if c.link.In() {
			s.idle.Remove(&c.link)
		}
		return c
	}
	s.sweep()
	c := s.spare.First()
	if c == nil {
		c = &client{}
		for i := range c.flows {
			c.flows[i].client = c
		}
	} else {
		s.spare.Remove(&c.link)
	}
	c.name = name
	s.all[name] = c
	s.wants.add(0)
	s.spread.add(0)
	return c
}

// idleIf makes a client idle if it has no request any more.
func (s *clients) idleIf(c *client) {
	if c.requests == 0 {
		c.since = s.gate.now()
		s.idle.PushLast(&c.link, c)
	}
}

// sweep drops the clients that were idle for Linger.
func (s *clients) sweep() {
	if s.idle.Empty() {
		return
	}
	now := s.gate.now()
	for c := s.idle.First(); c != nil && now-c.since >= s.share.Linger; c = s.idle.First() {
		s.idle.Remove(&c.link)
		s.forget(c)
	}
}

// forget drops a client without requests.
func (s *clients) forget(c *client) {
	delete(s.all, c.name)
	s.wants.remove(0)
	s.spread.remove(0)
	s.spare.PushFirst(&c.link, c)
}

// want counts the requests of a client, inside or waiting.
func (s *clients) want(c *client, requests int, bytes int64) {
	s.wants.remove(c.requests)
	s.spread.remove(bits.Len64(uint64(c.wanted)))
	c.requests += requests
	c.wanted += bytes
	s.wants.add(c.requests)
	s.spread.add(bits.Len64(uint64(c.wanted)))
}

// fits tells whether one more request of bytes fits into the client's share.
func (s *clients) fits(c *client, bytes int64) bool {
	if c.count == 0 {
		return true
	}
	parts := len(s.all) + 1
	countMax, bytesMax := max(s.gate.opts.Count/parts, 1), s.gate.opts.Bytes/int64(parts)
	if s.share.Even {
		countMax = min(countMax, max(s.wants.least(), s.share.EvenCount))
		// What the client wants that wants least, rounded up to a power of two.
		bytesMax = min(bytesMax, max(1<<s.spread.least(), s.share.EvenBytes))
	}
	return c.count < countMax && c.bytes+bytes <= bytesMax
}

// tally counts clients by a small number that each has, and knows the smallest of them.
type tally struct {
	count [64]int
	some  uint64 // numbers that a client has, by bit
}

// tallyMax is the largest number that is told apart.
const tallyMax = 63

func (t *tally) add(n int) {
	n = min(n, tallyMax)
	t.count[n]++
	t.some |= 1 << n
}

func (t *tally) remove(n int) {
	n = min(n, tallyMax)
	if t.count[n]--; t.count[n] == 0 {
		t.some &^= 1 << n
	}
}

// least is the smallest number that any client has. There must be one.
func (t *tally) least() int { return bits.TrailingZeros64(t.some) }
