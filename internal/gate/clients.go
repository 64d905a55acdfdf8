package gate

import (
	"math/bits"
	"time"

	"github.com/sluice-storage/sluice/internal/list"
)

// Share makes the clients of a gate equal. Those who wait go client by client, so that each gets as
// many bytes (deficit round robin). Of n clients each has at most one part of n+1 inside, so that
// there is room for the next one. A client may always have one request inside.
type Share struct {
	// Queue is how many requests of one client may wait; more are refused with errs.Again.
	Queue int

	// Linger is how long a client counts as present after its last request.
	Linger time.Duration

	// Even says that behind the gate is a device that all share, so that who has more inside gets
	// more of it: no client has more inside than the one wants that wants least; but EvenCount
	// requests and EvenBytes it may have in any case.
	Even      bool
	EvenCount int
	EvenBytes int64
}

// Client names one of those who share a gate: by the kind of the number, which is the user's, and
// the number.
type Client struct{ Kind, ID uint64 }

// clients are those who share a gate, with what each has inside and waiting, or who take turns at
// it, and wait. Guarded by Gate.mu.
type clients struct {
	gate  *Gate
	share Share

	all     map[Client]*client
	resting list.List[client] // that had a request here a moment ago, and have none, oldest first
	spare   list.List[client] // to use again
	wants   tally             // clients by the number of requests that they have here
	spread  tally             // clients by the logarithm of the bytes that they have here
}

// client is one of those who share a gate.
type client struct {
	name    Client
	count   int   // requests inside
	bytes   int64 // inside
	waiting int

	requests int   // inside and waiting
	wanted   int64 // bytes of these

	flows [MaxLevels]flow

	since time.Duration     // it rests
	link  list.Link[client] // in clients.resting or clients.spare
}

// find finds a client, or makes it.
func (s *clients) find(name Client) *client {
	if c := s.all[name]; c != nil {
		if c.link.In() {
			s.resting.Remove(&c.link)
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

// rest notes that a client has no request here any more, if it has none.
func (s *clients) rest(c *client) {
	if c.requests == 0 {
		c.since = s.gate.now()
		s.resting.PushLast(&c.link, c)
	}
}

// sweep forgets the clients that rest for long.
func (s *clients) sweep() {
	if s.resting.Empty() {
		return
	}
	now := s.gate.now()
	for c := s.resting.First(); c != nil && now-c.since >= s.share.Linger; c = s.resting.First() {
		s.resting.Remove(&c.link)
		s.forget(c)
	}
}

// forget forgets a client that has nothing here.
func (s *clients) forget(c *client) {
	delete(s.all, c.name)
	s.wants.remove(0)
	s.spread.remove(0)
	s.spare.PushFirst(&c.link, c)
}

// want notes that a client has more or fewer requests here, inside or waiting.
func (s *clients) want(c *client, requests int, bytes int64) {
	s.wants.remove(c.requests)
	s.spread.remove(bits.Len64(uint64(c.wanted)))
	c.requests += requests
	c.wanted += bytes
	s.wants.add(c.requests)
	s.spread.add(bits.Len64(uint64(c.wanted)))
}

// fits tells whether one more request of so many bytes fits into the client's share.
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
