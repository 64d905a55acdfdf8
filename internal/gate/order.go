package gate

import (
	"math/bits"

	"github.com/sluice-storage/sluice/internal/list"
)

// quantum is what a round of the deficit round robin gives each client, in bytes. A request costs
// at least that much.
const quantum = 4 << 10

// level is the waiting tickets of one level, by age, and with Share the flows of its clients, of
// which the first one is next.
type level struct {
	byAge list.List[Ticket]
	round list.List[flow]
}

// flow is the waiting tickets of one client at one level.
type flow struct {
	client  *client
	tickets list.List[Ticket]
	deficit int64           // bytes that it may still send in its turn
	turn    list.Link[flow] // in the round of the level
}

// cost is what a ticket takes of its client's deficit.
func (t *Ticket) cost() int64 { return max(t.bytes, quantum) }

// queueLocked queues a ticket behind those of its client and level.
func (g *Gate) queueLocked(t *Ticket) {
	g.usage.Waits++
	g.waiting++
	g.some |= 1 << t.level
	l := &g.levels[t.level]
	t.since = g.now()
	if !t.queued {
		t.waiter.Arm()
	}
	l.byAge.PushLast(&t.inLevel, t)
	if t.client == nil {
		return
	}
	t.client.waiting++
	f := &t.client.flows[t.level]
	if f.tickets.Empty() {
		l.round.PushLast(&f.turn, f)
	}
	f.tickets.PushLast(&t.inFlow, t)
}

// unqueueLocked removes a ticket from its queues.
func (g *Gate) unqueueLocked(t *Ticket) {
	g.waiting--
	l := &g.levels[t.level]
	l.byAge.Remove(&t.inLevel)
	if l.byAge.Empty() {
		g.some &^= 1 << t.level
	}
	if t.client == nil {
		return
	}
	t.client.waiting--
	f := &t.client.flows[t.level]
	f.tickets.Remove(&t.inFlow)
	if f.tickets.Empty() {
		f.deficit = 0
		l.round.Remove(&f.turn)
	}
	if g.opts.Turns { // it is a client only while it waits
		if t.client.waiting == 0 {
			g.clients.forget(t.client)
		}
		t.client = nil
	}
}

// wake ends the wait of a ticket that was removed from its queues.
func (t *Ticket) wake(err error) {
	if t.queued {
		t.Later(err)
	} else {
		t.waiter.Wake(err)
	}
}

// dropLocked ends the wait of a ticket that is not admitted.
func (g *Gate) dropLocked(t *Ticket) {
	g.unqueueLocked(t)
	if c := t.client; c != nil {
		t.client = nil
		g.clients.want(c, -1, -t.bytes)
		g.clients.idleIf(c)
	}
}

// admitLocked admits waiting tickets as long as there is room.
func (g *Gate) admitLocked() {
	if g.waiting == 0 {
		return
	}
	if g.clients != nil {
		g.clients.sweep()
	}
	for g.waiting > 0 {
		t := g.nextLocked()
		if t == nil || !g.roomLocked(t.count, t.bytes) {
			return // the next one must not starve behind smaller ones
		}
		if t.client != nil {
			f := &t.client.flows[t.level]
			f.deficit -= t.cost()
			g.levels[t.level].round.EndWith(&f.turn) // first the others
		}
		g.unqueueLocked(t)
		g.startLocked(t)
		t.wake(nil)
	}
}

// nextLocked finds the next ticket; nil when all are held back by their shares.
func (g *Gate) nextLocked() *Ticket {
	if g.clients != nil && !g.roomLocked(1, 0) {
		return nil // full: there is no need to find the next one
	}
	if t := g.agedLocked(); t != nil {
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

// agedLocked finds a ticket below the highest level that has waited longer than Age.
func (g *Gate) agedLocked() *Ticket {
	if g.some&(g.some-1) == 0 {
		return nil
	}
	now := g.now()
	for set := g.some &^ (1 << (bits.Len8(g.some) - 1)); set != 0; set &= set - 1 {
		t := g.levels[bits.TrailingZeros8(set)].byAge.First()
		if now-t.since >= g.opts.Age && g.shareLocked(t) {
			g.usage.Aged++
			return t
		}
	}
	return nil
}

// turnLocked finds the next ticket of a level. It goes round the clients: each round gives each of
// them a quantum; when none has enough for its next request, as many rounds are given at once as
// the first one needs.
func (g *Gate) turnLocked(l *level) *Ticket {
	if g.clients == nil {
		return l.byAge.First()
	}
	for {
		least := int64(-1)
		for f := l.round.First(); f != nil; f = f.turn.Next() {
			t := f.tickets.First()
			if !g.shareLocked(t) {
				continue
			}
			if f.deficit >= t.cost() {
				return t
			}
			if need := (t.cost() - f.deficit + quantum - 1) / quantum; least < 0 || need < least {
				least = need
			}
		}
		if least < 0 {
			return nil
		}
		for f := l.round.First(); f != nil; f = f.turn.Next() {
			if g.shareLocked(f.tickets.First()) {
				f.deficit += least * quantum
			}
		}
	}
}
