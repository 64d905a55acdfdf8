// Package progress decides who polls a completion queue, how long it spins, how it sleeps, and who
// is woken. It decides that for every provider that has more than one way to wait, so that there is
// one place to read, to measure and to mend. It moves no data and knows no device: a provider does.
//
// A provider offers a Source: it can poll, arm, sleep and be woken, and it does not know when. A
// Queue is the completion queue on top of it. One goroutine at a time holds the Queue's Turn and is
// its poller: it polls the Source, spins while answers come quickly, and sleeps in the Source. The
// other waiters are parked on a channel until there is something for them, or until the Turn is
// free. When nobody has taken the Turn for one to two periods (Watchdog) the Turn rests, and the
// provider's Background serves the peers until somebody waits again. So a waiter reads its own
// answer and no other goroutine has to be woken for it, and peers are served even if nobody waits.
//
// Above the queue, and above any other fabric.CQ, a Duty decides which goroutine of a user waits in
// it, for callers and for servers.
//
// Read queue.go first, then turn.go, spin.go and watchdog.go; then duty.go.
package progress

import "github.com/sluice-storage/sluice/fabric"

// Source is what a queue polls. Only the poller calls Poll, Arm, Sleep and Awake, one at a time.
type Source interface {
	// Poll handles what has arrived and pushes its completions, without blocking. It looks up to
	// looks times while there is nothing; with 0 it handles only what it can see without a system
	// call. Completions of receives may be added to b instead of being pushed. It tells whether
	// there was anything to do.
	Poll(looks int, b *Batch) bool

	// Arm makes the next event end Sleep, even if it comes before Sleep is called. It is false when
	// there is something to poll already; then Sleep is not called. Awake follows in any case.
	Arm() bool

	// Sleep blocks until there is something to poll, or until Wake. It may return for no reason.
	Sleep()

	// Awake undoes Arm. woken tells that Wake was called since, and has returned.
	Awake(woken bool)

	// Wake ends a Sleep, or keeps it from beginning. Any goroutine may call it, under the queue's
	// lock and at most once after each Arm, so it must not block.
	Wake()
}

// Background serves the peers of a source while its queue's turn rests.
type Background interface {
	// Prepare is called by the holder of the turn, which wants it to rest. It is false when there
	// is more to poll first.
	Prepare() bool

	// Start follows when the turn rests.
	Start()

	// Yield tells whether the turn may be taken at once. An implementation that has to stop first
	// returns false and, if wait is set because somebody waits, calls Queue.Yielded soon.
	Yield(wait bool) bool

	// Resume is called by the goroutine that has taken the turn after Yield.
	Resume()
}

// Batch is the poller's slice for completions of receives that need not go through the queue. A
// nil Batch takes nothing.
type Batch struct {
	q   *Queue // nil while it is closed
	dst []fabric.Completion
	n   int
}

// Add puts a completion into the batch. It is false where the completion must be pushed: the batch
// is not for q, it is full, or the queue holds something that comes first.
func (b *Batch) Add(q *Queue, c *fabric.Completion) bool {
	if b == nil || b.q != q || b.n == len(b.dst) || q.ready.Load() {
		return false
	}
	b.dst[b.n] = *c
	b.n++
	return true
}

// Any tells whether something is in the batch.
func (b *Batch) Any() bool { return b != nil && b.n > 0 }

// Room tells whether it takes more.
func (b *Batch) Room() bool { return b != nil && b.n < len(b.dst) }

func (b *Batch) open(q *Queue, dst []fabric.Completion) {
	if !q.opts.SolicitedOnly {
		b.q, b.dst = q, dst
	}
}

// close returns how many completions are in the batch.
func (b *Batch) close() int {
	n := b.n
	*b = Batch{}
	return n
}
