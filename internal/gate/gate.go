// Package gate is admission control: it bounds the bytes or requests that are under way at once. A
// request that finds no room waits, on its own goroutine or in a queue, until others leave. Every
// bound of this program that is a number is a Gate, whose Options say how:
//
//	user               limit            among clients     levels   what ends a wait besides room
//	iod/server         bytes, requests  fair, with a      higher   the request's context; too many
//	                                    share of each     first,   of one client are refused
//	                                                      ageing
//	msg, credits       requests, bytes  -                 higher   the caller's context; the end of
//	                                                      first,   the connection
//	                                                      ageing
//	meta/remote        requests         -                 likewise the caller's context
//	msg, calls         requests         in turn           likewise the server's end; nobody waits on
//	                                                               a goroutine
//	msg, send queue    places           -                 likewise the end of the connection
//	unifier            bytes            in order          -        the request's context
//	nbd                bytes            in order          -        the connection's context
//	mem.Limit          bytes            -                 -        nobody waits
//
// Rules that hold for all of them:
//   - A request takes all of its units in one step, so that two requests cannot deadlock with half
//     of their units each.
//   - Requests do not overtake: while others wait, a request that would fit waits too. The next one
//     blocks all others until it fits, so that small ones do not starve a large one.
//   - A wait ends with its context. A request that was admitted at that same moment is in.
//   - Passing takes one mutex. Only waiters allocate, and only until as many tickets exist as ever
//     waited at once.
//
// It is not for waits for something else than a number (buffers of a pool, room in a ring, the end
// of a flush): these use wait.Queue or wait.Waiter under their own lock.
//
// Read gate.go first (the contract), then order.go (who is next) and clients.go (shares).
package gate

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
)

// MaxLevels is how many levels there are; the highest goes first.
const MaxLevels = 8

// Options say what a gate lets through. One of Bytes and Count is needed.
type Options struct {
	// Name is the gate's name in errors.
	Name string

	// Bytes bounds the bytes of the requests inside. Default 0: not bounded.
	Bytes int64

	// Count bounds the requests inside. Default 0: not bounded.
	Count int

	// Age is how long a request can be overtaken by those of higher levels. Default 0: not at all,
	// the oldest goes first.
	Age time.Duration

	// Share divides the gate fairly among clients; it needs Bytes and Count. Default nil: there are no
	// clients, and requests of a level go in the order of their arrival.
	Share *Share

	// Turns serves waiting requests client by client, without shares of what is inside. It costs
	// nothing while nobody waits. Not with Share. Default false.
	Turns bool
}

// Request is a request to pass a gate.
type Request struct {
	Client Client // counts with Share or Turns only
	Level  int    // below MaxLevels
	Bytes  int64
}

// Ticket is one request's place in a gate, from Enter to Leave. The zero value is ready; it can be
// reused, for one request at a time, and must not be copied.
type Ticket struct {
	// Later is called when a request of Queue may go on, or with the reason why not. It is called
	// under the gate's lock, so it must only pass the request on.
	Later func(err error)

	waiter wait.Waiter
	queued bool    // by Queue: Later is called, and no goroutine waits
	name   Client  // with Turns
	client *client // nil without Share; with Turns while it waits
	level  int
	count  int
	bytes  int64
	since  time.Duration // it waits
	inside bool

	inLevel list.Link[Ticket] // among all of a level by age; in Gate.idle
	inFlow  list.Link[Ticket] // with Share or Turns: among those of its client and level
}

// Gate lets requests through up to its limits. Make one with New. Safe for concurrent use.
type Gate struct {
	opts Options
	now  func() time.Duration // since some moment

	mu      sync.Mutex
	closed  error
	count   int   // requests inside
	bytes   int64 // of these
	waiting int
	some    uint8 // levels with somebody waiting, by bit
	levels  [MaxLevels]level
	clients *clients          // nil without Share and Turns
	idle    list.List[Ticket] // of Take, for reuse
	usage   Usage             // the counters
}

// Usage is a snapshot of a gate.
type Usage struct {
	Count   int   // requests inside
	Bytes   int64 // of these
	High    int64 // the most bytes that were inside at once
	Waiting int
	Passed  uint64 // admitted requests
	Waits   uint64 // requests that had to wait
	Aged    uint64 // of these, admitted before higher levels because of Age
	Refused uint64 // requests whose client had too many waiting
}

// New makes a gate. Invalid limits are a programmer's error, and panic.
func New(o Options) *Gate {
	invariant.Check(o.Bytes >= 0 && o.Count >= 0 && o.Bytes+int64(o.Count) > 0,
		"a gate for %d bytes, %d requests", o.Bytes, o.Count)
	start := time.Now()
	g := &Gate{opts: o, now: func() time.Duration { return time.Since(start) }}
	if o.Share != nil {
		invariant.Check(o.Bytes > 0 && o.Count > 0, "shares of a gate without bounds")
		g.clients = &clients{gate: g, share: *o.Share, all: map[Client]*client{}}
	}
	if o.Turns {
		invariant.Check(o.Share == nil, "a gate with shares and with turns")
		g.clients = &clients{gate: g, all: map[Client]*client{}}
	}
	return g
}

// Total is how many bytes fit.
func (g *Gate) Total() int64 { return g.opts.Bytes }

// Enter returns when the request may go on; then t is its owner's until Leave. A request of more
// than the gate's bytes counts as all of them. It fails with the context's error, with that of
// Close, or with errs.Again when too many of its client wait already.
func (g *Gate) Enter(ctx context.Context, t *Ticket, r Request) error {
	t.queued = false // a ticket that was queued before may wait in its goroutine now
	if in, err := g.begin(t, r); in || err != nil {
		return err
	}
	return g.wait(ctx, t)
}

// Queue is Enter that does not wait: where it is false and there is no error t.Later will be
// called.
func (g *Gate) Queue(t *Ticket, r Request) (in bool, err error) {
	t.queued = true
	return g.begin(t, r)
}

// TryEnter is Enter where that does not wait; false where it would.
func (g *Gate) TryEnter(t *Ticket, r Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return false
	}
	g.fillLocked(t, r)
	if g.tryLocked(t) {
		return true
	}
	if t.client != nil {
		g.clients.idleIf(t.client)
	}
	return false
}

// Leave ends what Enter has begun, and admits others.
func (g *Gate) Leave(t *Ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	invariant.Check(t.inside, "a ticket was given back twice")
	t.inside = false
	g.count -= t.count
	g.bytes -= t.bytes
	if c := t.client; c != nil {
		t.client = nil
		c.count--
		c.bytes -= t.bytes
		g.clients.want(c, -1, -t.bytes)
		g.clients.idleIf(c)
	}
	g.admitLocked()
}

// Acquire takes n bytes, of at most Total, waiting behind earlier takers until they are free.
func (g *Gate) Acquire(ctx context.Context, n int64) error { return g.Take(ctx, 0, 0, n) }

// Take takes count requests and bytes, at most the limits, and waits until they are free. It is
// Enter without a ticket: what is taken can be given back in parts, and by others. It is not for
// gates with clients.
func (g *Gate) Take(ctx context.Context, level, count int, bytes int64) error {
	g.mu.Lock()
	if done, err := g.tryTakeLocked(count, bytes); done || err != nil {
		g.mu.Unlock()
		return err
	}
	t := g.idle.First()
	if t == nil {
		t = &Ticket{}
	} else {
		g.idle.Remove(&t.inLevel)
	}
	t.level, t.count, t.bytes = level, count, bytes
	g.queueLocked(t)
	g.admitLocked() // it may go before those that wait: its level is higher
	g.mu.Unlock()
	err := g.wait(ctx, t)
	g.mu.Lock()
	t.inside = false
	g.idle.PushFirst(&t.inLevel, t)
	g.mu.Unlock()
	return err
}

// TryTake is Take that returns false instead of waiting, also where the gate is closed.
func (g *Gate) TryTake(count int, bytes int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ok, _ := g.tryTakeLocked(count, bytes)
	return ok
}

// TryAcquire is Acquire that returns false instead of waiting.
func (g *Gate) TryAcquire(n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n > g.opts.Bytes {
		return false
	}
	ok, _ := g.tryTakeLocked(0, n)
	return ok
}

func (g *Gate) tryTakeLocked(count int, bytes int64) (ok bool, err error) {
	invariant.Check(g.clients == nil, "a gate with clients needs a ticket")
	invariant.Check(bytes >= 0 && (g.opts.Bytes == 0 || bytes <= g.opts.Bytes),
		"more than there is is taken")
	if g.closed != nil || g.waiting > 0 || !g.roomLocked(count, bytes) {
		return false, g.closed
	}
	g.takeLocked(count, bytes)
	return true, nil
}

// Release gives n bytes back that Acquire or TryAcquire has taken, and admits others.
func (g *Gate) Release(n int64) { g.Give(0, n) }

// Give gives back what Take has taken, or a part of it, and admits others.
func (g *Gate) Give(count int, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count -= count
	g.bytes -= bytes
	invariant.Check(g.count >= 0 && g.bytes >= 0, "more is given back than was taken")
	g.admitLocked()
}

// Free is how many bytes are not taken.
func (g *Gate) Free() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opts.Bytes - g.bytes
}

// Close refuses all waiting and later requests with err. Requests inside leave as usual. The first
// error is kept.
func (g *Gate) Close(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return
	}
	g.closed = err
	for i := range g.levels {
		for t := g.levels[i].byAge.First(); t != nil; t = g.levels[i].byAge.First() {
			g.dropLocked(t)
			t.wake(err)
		}
	}
}

// Usage returns the counters.
func (g *Gate) Usage() Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.usage
	u.Count, u.Bytes, u.Waiting = g.count, g.bytes, g.waiting
	return u
}

// begin admits a request, refuses it, or queues it: then in is false and there is no error.
func (g *Gate) begin(t *Ticket, r Request) (in bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return false, g.closed
	}
	g.fillLocked(t, r)
	if g.tryLocked(t) {
		return true, nil
	}
	if g.opts.Turns {
		t.client = g.clients.find(t.name)
	} else if c := t.client; c != nil {
		if c.waiting >= g.opts.Share.Queue {
			g.usage.Refused++
			g.clients.idleIf(c)
			return false, errs.Newf(errs.Again, "gate.Enter", g.opts.Name,
				"%d requests of this client wait already", c.waiting)
		}
		g.clients.want(c, 1, t.bytes)
	}
	g.queueLocked(t)
	g.admitLocked() // it may go before those that wait: its level is higher, or they wait for shares
	return false, nil
}

// wait waits for the ticket's turn.
func (g *Gate) wait(ctx context.Context, t *Ticket) error {
	if woken, err := t.waiter.Wait(ctx); woken {
		return err
	}
	return g.giveUp(t, ctx.Err())
}

// giveUp ends the wait of a ticket whose context has ended, unless it was let in meanwhile.
func (g *Gate) giveUp(t *Ticket, cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !t.inLevel.In() {
		return t.waiter.Woken()
	}
	g.dropLocked(t)
	g.admitLocked() // it may have blocked others
	return cause
}

// fillLocked copies a request into its ticket.
func (g *Gate) fillLocked(t *Ticket, r Request) {
	t.level, t.count, t.bytes = r.Level, 1, r.Bytes
	if g.opts.Bytes > 0 {
		t.bytes = min(t.bytes, g.opts.Bytes)
	}
	if t.name = r.Client; g.opts.Share != nil {
		t.client = g.clients.find(r.Client)
	}
}

// tryLocked admits a request if nobody waits and there is room.
func (g *Gate) tryLocked(t *Ticket) bool {
	if g.waiting > 0 || !g.roomLocked(t.count, t.bytes) || !g.shareLocked(t) {
		return false
	}
	if t.client != nil {
		g.clients.want(t.client, 1, t.bytes)
	}
	g.startLocked(t)
	return true
}

// roomLocked tells whether count and bytes more fit.
func (g *Gate) roomLocked(count int, bytes int64) bool {
	o := &g.opts
	return (o.Count == 0 || g.count+count <= o.Count) && (o.Bytes == 0 || g.bytes+bytes <= o.Bytes)
}

// shareLocked tells whether the request fits into its client's share.
func (g *Gate) shareLocked(t *Ticket) bool {
	return t.client == nil || g.opts.Turns || g.clients.fits(t.client, t.bytes)
}

// startLocked admits a request.
func (g *Gate) startLocked(t *Ticket) {
	t.inside = true
	g.takeLocked(t.count, t.bytes)
	if c := t.client; c != nil {
		c.count++
		c.bytes += t.bytes
	}
}

func (g *Gate) takeLocked(count int, bytes int64) {
	g.count += count
	g.bytes += bytes
	g.usage.Passed++
	g.usage.High = max(g.usage.High, g.bytes)
}
