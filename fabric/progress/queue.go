package progress

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Queue is a completion queue on top of a Source: fabric.CQ for its users, Push,
// Kick and Yielded for its provider. Safe for concurrent use.
//
// Locks: mu is a leaf, but for Source.Wake. ready and parked can be read without it. A waiter sets
// asleep or parked and then looks at ready; whoever sets ready then looks at these two. So no
// wake-up is lost. kicked is to a poller as ready is.
type Queue struct {
	provider.Completions // guarded by mu, where they do not say otherwise

	src        Source
	background Background
	delivered  func(got []fabric.Completion)
	opts       fabric.CQOptions
	watchdog   *Watchdog[*Queue]

	turn    Turn
	spin    spin          // the poller's
	batch   Batch         // the poller's
	yielded time.Duration // the poller's, by the clock of spin: when it last saw the scheduler
	asleep  atomic.Bool   // the poller sleeps in the source, and was not woken
	kicked  atomic.Bool   // Kick was called, and no poller has gone on because of it
	ready   atomic.Bool   // Wait would return at once
	parked  atomic.Int32  // waiters on token
	spun    atomic.Uint64 // waits that were over while the poller spun
	slept   atomic.Uint64 // how often the poller slept in the source
	token   chan struct{} // wakes one parked waiter; closed by Close

	mu     sync.Mutex
	ctx    context.Context // the poller's, if it can end
	called bool            // Wake was called
}

// Config is what a provider decides about its queues.
type Config struct {
	Domain   *provider.Domain
	Pace     Pace
	Spinners *Spinners         // of the domain
	Watchdog *Watchdog[*Queue] // of the domain

	// Delivered is called with the completions that a user has been given.
	Delivered func(got []fabric.Completion)
}

// Open makes q ready. Its turn rests: the provider serves endpoints until somebody waits.
func (q *Queue) Open(src Source, background Background, opts fabric.CQOptions, cfg Config) {
	q.Completions.Open(cfg.Domain, opts)
	q.src, q.background, q.opts = src, background, opts
	q.delivered, q.watchdog = cfg.Delivered, cfg.Watchdog
	q.token = make(chan struct{}, 1)
	q.spin.open(opts, cfg.Pace, cfg.Spinners)
	q.turn.word.Store(turnRests)
}

// Options returns the options that it was made with.
func (q *Queue) Options() fabric.CQOptions { return q.opts }

// Discourage makes the next waits sleep without spinning: the cores are needed elsewhere.
func (q *Queue) Discourage() { q.spin.discourage() }

// WaitCounts implements fabric.WaitCounter.
func (q *Queue) WaitCounts() fabric.WaitCounts {
	return fabric.WaitCounts{Spun: q.spun.Load(), Slept: q.slept.Load()}
}

// Poll implements fabric.CQ.
func (q *Queue) Poll(dst []fabric.Completion) int {
	n := 0
	if !q.ready.Load() && q.take(false) {
		q.batch.open(q, dst)
		q.src.Poll(1, &q.batch)
		n = q.batch.close()
		q.leave()
	}
	if n < len(dst) && (q.opts.SolicitedOnly || q.ready.Load()) {
		q.mu.Lock()
		n += q.takeLocked(dst[n:])
		q.mu.Unlock()
	}
	q.delivered(dst[:n])
	return n
}

// Wait implements fabric.CQ.
func (q *Queue) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	invariant.Check(len(dst) > 0, "CQ.Wait without room for a completion")
	for {
		if q.ready.Load() {
			if n, err, ok := q.result(dst); ok {
				q.delivered(dst[:n])
				return n, err
			}
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if !q.take(true) {
			if err := q.park(ctx); err != nil {
				return 0, err
			}
			continue
		}
		n, err := q.drive(ctx, dst)
		q.leave()
		if n > 0 {
			q.delivered(dst[:n])
			return n, nil
		}
		if err != nil && !q.ready.Load() {
			return 0, err
		}
	}
}

// result is what Wait returns, if there is anything.
func (q *Queue) result(dst []fabric.Completion) (n int, err error, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.Closed():
		return 0, q.ClosedErr(), true
	case q.Ready():
		n = q.takeLocked(dst)
		q.wakeLocked() // somebody else may take the rest
		return n, nil, true
	case q.called:
		q.called = false
		q.updateReadyLocked()
		return 0, nil, true
	}
	return 0, nil, false
}

// take takes the turn, also while it rests. wait: the caller will wait for it.
func (q *Queue) take(wait bool) bool {
	if q.turn.Take() {
		return true
	}
	if !q.turn.Resting() || !q.background.Yield(wait) || !q.turn.Resume() {
		return false
	}
	q.background.Resume()
	return true
}

// yields tells whether the turn rests by now, and may be taken at once: perhaps nobody is awake who
// would notice what comes.
func (q *Queue) yields() bool { return q.turn.Resting() && q.background.Yield(true) }

// Yielded is called by a Background that has stopped because Yield asked it to.
func (q *Queue) Yielded() {
	if q.turn.Resume() {
		q.leave()
	}
}

// leave releases the turn and wakes a parked waiter, if there is one, to take it.
func (q *Queue) leave() {
	if q.turn.Leave() {
		q.watchdog.Add(q)
	}
	if q.parked.Load() > 0 {
		q.mu.Lock()
		q.wakeParkedLocked()
		q.mu.Unlock()
	}
}

// drive is the poller: it polls until there is something to take or ctx ends.
func (q *Queue) drive(ctx context.Context, dst []fabric.Completion) (n int, err error) {
	if ctx.Done() != nil {
		q.watch(ctx)
		defer q.unwatch()
	}
	q.batch.open(q, dst)
	q.spin.begin()
	for looks := 0; ; {
		did := q.src.Poll(looks, &q.batch)
		if q.batch.n > 0 || q.ready.Load() {
			break
		}
		if !did && q.spin.more() {
			looks = q.spin.looks()
			continue
		}
		if err = ctx.Err(); err != nil {
			break // also while there is much to do that completes nothing
		}
		if did {
			looks = q.spin.looks()
			continue
		}
		if looks = 0; !q.sleep(ctx) {
			looks = 1
		}
	}
	if q.spin.paid() {
		q.spun.Add(1)
	}
	q.spin.end()
	return q.batch.close(), err
}

// sleep sleeps in the source until there is something to poll or to take. It is false if there was
// something before it could.
func (q *Queue) sleep(ctx context.Context) bool {
	q.yield()
	if !q.src.Arm() {
		q.src.Awake(false)
		return false
	}
	q.asleep.Store(true)
	if !q.ready.Load() && !q.kicked.Swap(false) && ctx.Err() == nil {
		q.slept.Add(1)
		q.src.Sleep()
	}
	woken := !q.asleep.Swap(false)
	if woken {
		q.mu.Lock()
		//lint:ignore SA2001 to wait until Wake has returned, which is called under mu
		q.mu.Unlock()
	}
	q.src.Awake(woken)
	return true
}

// yieldEvery is how long a poller goes on without the scheduler, at most: half of what Go takes for
// too long.
const yieldEvery = 5 * time.Millisecond

// yield tells Go's scheduler that the poller is not stuck. A goroutine that polls, serves and
// sleeps in the kernel may never need the scheduler, which takes its place away then, every 10 ms,
// and looks after its other threads every 20 us for the next millisecond.
func (q *Queue) yield() {
	if now := q.spin.clock(); now-q.yielded > yieldEvery {
		q.yielded = now
		runtime.Gosched()
	}
}

// watch has the watchdog check the poller's context, which costs neither a channel nor a
// goroutine.
func (q *Queue) watch(ctx context.Context) {
	q.mu.Lock()
	q.ctx = ctx
	q.mu.Unlock()
	if q.turn.Watch() {
		q.watchdog.Add(q)
	}
}

func (q *Queue) unwatch() {
	q.mu.Lock()
	q.ctx = nil
	q.mu.Unlock()
}

// watched tells the watchdog whether the poller has a context, and wakes the poller when that has
// ended.
func (q *Queue) watched() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx == nil {
		return false
	}
	if q.ctx.Err() != nil {
		q.wakePollerLocked()
	}
	return true
}

// Pressing implements Watched: who depends on more than the end of a wait has a Duty.
func (q *Queue) Pressing() bool { return false }

// Check implements Watched.
func (q *Queue) Check() bool {
	switch q.turn.Check(q.watched) {
	case InUse:
		return false
	case Again:
		return true
	}
	if !q.background.Prepare() {
		q.turn.Leave() // the watchdog has it already
		q.wakeOne()
		return true
	}
	q.turn.Rest()
	q.background.Start()
	q.wakeOne()
	return false
}

// wakeOne has one parked waiter try the turn again, which the watchdog has held for a moment.
func (q *Queue) wakeOne() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeParkedLocked()
}

// park sleeps until somebody leaves a token.
func (q *Queue) park(ctx context.Context) (err error) {
	q.parked.Add(1) // leave, and the watchdog, see it from now on
	if !q.ready.Load() && !q.turn.Free() && !q.yields() {
		if done := ctx.Done(); done == nil {
			<-q.token
		} else {
			select {
			case <-q.token:
			case <-done:
				err = ctx.Err()
			}
		}
	}
	q.parked.Add(-1)
	if err != nil {
		q.mu.Lock()
		q.wakeLocked() // the token may have been meant for this one
		q.mu.Unlock()
	}
	return err
}

// takeLocked moves completions out.
func (q *Queue) takeLocked(dst []fabric.Completion) int {
	n := q.Take(dst)
	q.updateReadyLocked()
	return n
}

// updateReadyLocked sets ready to what the queue holds.
func (q *Queue) updateReadyLocked() bool {
	ready := q.Ready() || q.called || q.Closed()
	if q.ready.Load() != ready {
		q.ready.Store(ready)
	}
	return ready
}

// Push adds a completion. solicited: it is that of a receive whose sender asked for an event. Any
// goroutine may call it, the poller too.
func (q *Queue) Push(c *fabric.Completion, solicited bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Completions.Push(c, solicited) {
		q.wakeLocked()
	}
}

// wakeLocked wakes somebody if there is something to take.
func (q *Queue) wakeLocked() {
	if q.updateReadyLocked() && !q.wakePollerLocked() {
		q.wakeParkedLocked()
	}
}

// wakePollerLocked wakes the poller, if it sleeps.
func (q *Queue) wakePollerLocked() bool {
	if !q.asleep.CompareAndSwap(true, false) {
		return false
	}
	q.src.Wake()
	return true
}

// wakeParkedLocked wakes one parked waiter.
func (q *Queue) wakeParkedLocked() {
	if q.Closed() || q.parked.Load() == 0 {
		return
	}
	select {
	case q.token <- struct{}{}:
	default:
	}
}

// ReadyAll makes everything in the queue end a Wait, for a device that tells of solicited messages
// only after their completions.
func (q *Queue) ReadyAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Completions.ReadyAll()
	q.wakeLocked()
}

// Kick makes a poller that sleeps, or is about to, poll and arm again, although no event came.
func (q *Queue) Kick() {
	q.kicked.Store(true)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakePollerLocked()
}

// Wake implements fabric.CQ.
func (q *Queue) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called = true
	q.wakeLocked()
}

// Close implements fabric.CQ.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Shut() {
		q.updateReadyLocked()
		q.wakePollerLocked()
		close(q.token)
	}
	return nil
}
