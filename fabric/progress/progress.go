// Package progress decides who polls a completion queue, how long it spins, how it sleeps, and who
// is woken. It decides that for every provider that has more than one way to wait, so that there is
// one place to read, to measure and to mend.
//
// A provider offers a Source: it can poll, arm, sleep and be woken, and it knows nothing of when. A
// Queue is the completion queue on top of it. One goroutine at a time has the Queue's Turn: it
// polls the Source, spins while answers come quickly, and sleeps in the Source. The others who wait
// nap on a channel until there is something for them, or until the Turn is free. When nobody has
// taken the Turn for one to two visits (Visitor) the provider's Keeper serves the peers until
// somebody waits again. So whoever waits reads its own answer, no other goroutine has to be woken
// for it, and a peer is served even if nobody waits at all.
//
// Above the queue, and above any other fabric.CQ, a Duty decides which goroutine of a user waits in
// it, for callers and for servers.
//
// Read queue.go first, then turn.go, spin.go and visit.go; then duty.go.
package progress

import "github.com/sluice-storage/sluice/fabric"

// Source is what a queue polls. Only who has the queue's turn calls Poll, Arm, Sleep and Awake, one
// after the other; the queue sees to that.
type Source interface {
	// Poll does what has arrived and pushes its completions, without blocking. It looks up to looks
	// times while there is nothing; 0 is for what can be seen for nothing, without a system call.
	// Receives may be given to h instead of being pushed. It tells
	// whether there was anything to do.
	Poll(looks int, h *Hand) bool

	// Arm makes the next event end Sleep, even if it comes before Sleep is called. It is false when
	// there is something to poll already; then Sleep is not called. Awake follows in any case.
	Arm() bool

	// Sleep blocks until there is something to poll, or until Wake. It may return for no reason.
	Sleep()

	// Awake undoes Arm. woken tells that Wake was called since, and has returned.
	Awake(woken bool)

	// Wake ends a Sleep, or keeps it from beginning. Anybody calls it, under the queue's lock and
	// at most once after each Arm, so it does not block.
	Wake()
}

// Keeper serves the peers of a source while its queue's turn rests.
type Keeper interface {
	// Prepare is called by who has the turn and wants it to rest. It is false when there is more to
	// poll first.
	Prepare() bool

	// Keep follows when the turn rests.
	Keep()

	// Yield tells whether the turn may be taken from the keeper at once. A keeper that has to stop
	// first says no and, if wait is set because somebody waits, calls Queue.Yielded soon.
	Yield(wait bool) bool

	// Resume is called by who took the turn from the keeper.
	Resume()
}

// Hand is the memory of a goroutine that polls, for receives that need not go through the queue. A
// nil Hand takes nothing.
type Hand struct {
	q   *Queue // nil while it is shut
	dst []fabric.Completion
	n   int
}

// Take puts a completion into the hand. It is false where it must be pushed: there is no hand for
// q, it is full, or something is in the queue that comes first.
func (h *Hand) Take(q *Queue, c *fabric.Completion) bool {
	if h == nil || h.q != q || h.n == len(h.dst) || q.due.Load() {
		return false
	}
	h.dst[h.n] = *c
	h.n++
	return true
}

// Some tells whether something is in the hand.
func (h *Hand) Some() bool { return h != nil && h.n > 0 }

// Room tells whether it takes more.
func (h *Hand) Room() bool { return h != nil && h.n < len(h.dst) }

func (h *Hand) open(q *Queue, dst []fabric.Completion) {
	if !q.opts.SolicitedOnly {
		h.q, h.dst = q, dst
	}
}

// shut returns how many completions are in the hand.
func (h *Hand) shut() int {
	n := h.n
	*h = Hand{}
	return n
}
