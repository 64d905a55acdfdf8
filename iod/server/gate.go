package server

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/msg"
)

// limits are what one gate lets through.
type limits struct {
	name     string // of what it is the gate to, for people
	requests int    // that run at once
	bytes    int64  // that they stand for
	queue    int    // requests of one client that may wait; beyond that it is told to come again

	// even says that behind the gate is a device that all share, so that who has more under way gets
	// more of it: no client runs more than the one with the fewest requests wants to, or than these.
	even         bool
	evenRequests int
	evenBytes    int64

	age    time.Duration // a request that has waited so long goes before higher levels
	linger time.Duration // a client counts as present so long after its last request
}

// quantum is what a round of the deficit round robin gives each client, in bytes.
const quantum = 4 << 10

// clientKey is who a request is counted for: the session of its capability, or the peer where it
// has none.
type clientKey struct{ session, peer uint64 }

// gate decides which requests may go on. Those who may not wait here, each on its own goroutine,
// until somebody who leaves lets them in: higher levels first, then client by client so that each
// gets as many bytes (deficit round robin). Nobody holds more than a share of the gate, so that
// there is always room for one more client. Safe for concurrent use; nothing is allocated for a
// request.
type gate struct {
	limits
	now func() time.Duration // since some moment

	mu      sync.Mutex
	running int
	load    int64 // bytes running
	waiting int
	clients map[clientKey]*client
	idle    list.List[client] // that had a request here a moment ago, and have none, oldest first
	wants   tally             // clients by the number of requests that they have here
	spread  tally             // clients by the logarithm of the bytes that they have here
	levels  [msg.MaxLevels]level
	some    uint8 // levels with somebody waiting, by bit
	spare   list.List[client]
	counts  gateCounts
}

// gateCounts are what a gate has seen.
type gateCounts struct {
	waits   uint64 // requests that had to wait
	aged    uint64 // of these, let in before higher levels because they had waited for long
	refused uint64 // told to come again
	high    int64  // the most bytes that ran at once
}

// ticket is one request's place in a gate. It is used again and again; the zero value is ready.
type ticket struct {
	client  *client
	level   int
	cost    int64
	since   time.Duration
	granted bool
	ready   chan struct{}

	inFlow, inLevel list.Link[ticket]
}

func newGate(l limits) *gate {
	start := time.Now()
	return &gate{limits: l, clients: map[clientKey]*client{},
		now: func() time.Duration { return time.Since(start) }}
}

// enter returns when the request may go on, or with an error when it may not: errs.Again when too
// many of its client wait already.
func (g *gate) enter(ctx context.Context, t *ticket, k clientKey, lv msg.Level, cost int64) error {
	g.mu.Lock()
	c := g.clientLocked(k)
	if g.tryLocked(t, c, lv, cost) {
		g.mu.Unlock()
		return nil
	}
	if c.waiting >= g.queue {
		g.counts.refused++
		g.restLocked(c)
		g.mu.Unlock()
		return errs.Newf(errs.Again, "iod.Serve", "",
			"%d requests of this client wait for %s already", g.queue, g.name)
	}
	if t.ready == nil {
		t.ready = make(chan struct{}, 1)
	}
	g.counts.waits++
	g.changeLocked(c, 1, t.cost)
	g.queueLocked(t)
	g.admitLocked() // those who wait may be held back by nothing but their own share
	g.mu.Unlock()
	if _, ok := wait.For(ctx, t.ready); !ok {
		return g.giveUp(ctx, t)
	}
	return nil
}

// try is enter where that does not wait; false where it would.
func (g *gate) try(t *ticket, k clientKey, lv msg.Level, cost int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.clientLocked(k)
	ok := g.tryLocked(t, c, lv, cost)
	if !ok {
		g.restLocked(c)
	}
	return ok
}

// tryLocked fills in the ticket, and lets the request go on if nobody waits and it has room.
func (g *gate) tryLocked(t *ticket, c *client, lv msg.Level, cost int64) bool {
	t.client, t.level, t.cost = c, int(lv), min(max(cost, quantum), g.bytes)
	if g.waiting > 0 || !g.roomLocked(t.cost) || !g.shareLocked(c, t.cost) {
		return false
	}
	g.changeLocked(c, 1, t.cost)
	g.startLocked(t)
	return true
}

// giveUp ends the waiting of a request whose client does not want it any more.
func (g *gate) giveUp(ctx context.Context, t *ticket) error {
	g.mu.Lock()
	if t.granted { // in the same moment
		g.mu.Unlock()
		<-t.ready
		g.leave(t)
		return ctx.Err()
	}
	c := t.client
	g.unqueueLocked(t)
	g.changeLocked(c, -1, -t.cost)
	g.restLocked(c)
	g.admitLocked() // it may have been in the way of others
	g.mu.Unlock()
	return ctx.Err()
}

// leave ends what enter has begun, and lets others in.
func (g *gate) leave(t *ticket) {
	g.mu.Lock()
	invariant.Check(t.granted, "a ticket was given back twice")
	c := t.client
	t.granted, t.client = false, nil
	g.running--
	g.load -= t.cost
	c.running--
	c.load -= t.cost
	g.changeLocked(c, -1, -t.cost)
	g.restLocked(c)
	if g.waiting > 0 {
		g.admitLocked()
	}
	g.mu.Unlock()
}

// startLocked lets a request go on.
func (g *gate) startLocked(t *ticket) {
	t.granted = true
	g.running++
	g.load += t.cost
	g.counts.high = max(g.counts.high, g.load)
	t.client.running++
	t.client.load += t.cost
}

// roomLocked tells whether the gate has room for one more request. One request fits in any case.
func (g *gate) roomLocked(cost int64) bool {
	return g.running == 0 || g.running < g.requests && g.load+cost <= g.bytes
}

// shareLocked tells whether the request fits into its client's share: of n clients each gets one
// part of n+1, so that there is room for the next one; and where they are to be even, no more than
// the one wants that wants least. A client may always run one request.
func (g *gate) shareLocked(c *client, cost int64) bool {
	if c.running == 0 {
		return true
	}
	parts := len(g.clients) + 1
	requests, bytes := max(g.requests/parts, 1), g.bytes/int64(parts)
	if g.even {
		requests = min(requests, max(g.leastLocked(), g.evenRequests))
		bytes = min(bytes, max(g.leastBytesLocked(), g.evenBytes))
	}
	return c.running < requests && c.load+cost <= bytes
}

// admitLocked lets in as many as there is room for.
func (g *gate) admitLocked() {
	now := g.now()
	g.sweepLocked(now)
	for g.waiting > 0 && g.running < g.requests {
		t := g.chooseLocked(now)
		if t == nil || !g.roomLocked(t.cost) {
			return // the one whose turn it is must not be overtaken by smaller ones for ever
		}
		f := &t.client.flows[t.level]
		f.deficit -= t.cost
		g.levels[t.level].round.EndWith(&f.turn) // first the others
		g.unqueueLocked(t)
		g.startLocked(t)
		t.ready <- struct{}{} // it has room: nobody else sends
	}
}

// chooseLocked finds whose turn it is; nil when all who wait are held back by their share.
func (g *gate) chooseLocked(now time.Duration) *ticket {
	if t := g.agedLocked(now); t != nil {
		return t
	}
	for set := g.some; set != 0; {
		l := bits.Len8(set) - 1
		if t := g.turnLocked(&g.levels[l]); t != nil {
			return t
		}
		set &^= 1 << l
	}
	return nil
}

// agedLocked finds one below the highest level that has waited for too long.
func (g *gate) agedLocked(now time.Duration) *ticket {
	if g.some&(g.some-1) == 0 {
		return nil
	}
	for set := g.some &^ (1 << (bits.Len8(g.some) - 1)); set != 0; set &= set - 1 {
		t := g.levels[bits.TrailingZeros8(set)].byAge.First()
		if now-t.since >= g.age && g.shareLocked(t.client, t.cost) {
			g.counts.aged++
			return t
		}
	}
	return nil
}

// turnLocked goes round the clients of a level. Each round gives each of them a quantum; when none
// has enough for its next request, as many rounds are given at once as the first one needs.
func (g *gate) turnLocked(l *level) *ticket {
	for {
		least := int64(-1)
		for f := l.round.First(); f != nil; f = f.turn.Next() {
			t := f.tickets.First()
			if !g.shareLocked(f.client, t.cost) {
				continue
			}
			if f.deficit >= t.cost {
				return t
			}
			if need := (t.cost - f.deficit + quantum - 1) / quantum; least < 0 || need < least {
				least = need
			}
		}
		if least < 0 {
			return nil
		}
		for f := l.round.First(); f != nil; f = f.turn.Next() {
			if g.shareLocked(f.client, f.tickets.First().cost) {
				f.deficit += least * quantum
			}
		}
	}
}
