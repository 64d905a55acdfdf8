package progress

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Queue is a completion queue on top of a Source: fabric.CQ for its users, Push,
// Kick and Yielded for its provider. Safe for concurrent use.
//
// Locks: mu is a leaf, but for Source.Wake. due and naps can be read without it; they are written
// before the words that the other side reads before it sleeps, so that nobody is missed.
type Queue struct {
	provider.Completions // guarded by mu, where they do not say otherwise

	src    Source
	keeper Keeper
	settle func(got []fabric.Completion)
	opts   fabric.CQOptions
	visits *Visitor[*Queue]

	turn   Turn
	spin   spin        // of who has the turn
	hand   Hand        // likewise
	asleep atomic.Bool // who has the turn sleeps in the source, and was not woken
	due    atomic.Bool // Wait would return at once
	naps   atomic.Int32
	spun   atomic.Uint64 // waits that were over while who has the turn spun
	slept  atomic.Uint64 // how often it slept in the source
	token  chan struct{} // wakes one who naps; closed by Close

	mu     sync.Mutex
	ctx    context.Context // of who has the turn, if it can end
	called bool            // Wake was called
}

// Config is what a provider decides about its queues.
type Config struct {
	Domain   *provider.Domain
	Pace     Pace
	Spinners *Spinners        // of the domain
	Visits   *Visitor[*Queue] // of the domain

	// Settle is told which completions a user has been given.
	Settle func(got []fabric.Completion)
}

// Open makes q ready. Its turn rests: endpoints come kept.
func (q *Queue) Open(src Source, keeper Keeper, opts fabric.CQOptions, cfg Config) {
	q.Completions.Open(cfg.Domain, opts)
	q.src, q.keeper, q.opts = src, keeper, opts
	q.settle, q.visits = cfg.Settle, cfg.Visits
	q.token = make(chan struct{}, 1)
	q.spin.open(opts, cfg.Pace, cfg.Spinners)
	q.turn.word.Store(turnRests)
}

// Options are those that it was made with.
func (q *Queue) Options() fabric.CQOptions { return q.opts }

// Discourage tells that the cores have better things to do than to spin.
func (q *Queue) Discourage() { q.spin.discourage() }

// WaitCounts implements fabric.WaitCounter.
func (q *Queue) WaitCounts() fabric.WaitCounts {
	return fabric.WaitCounts{Spun: q.spun.Load(), Slept: q.slept.Load()}
}

// Poll implements fabric.CQ.
func (q *Queue) Poll(dst []fabric.Completion) int {
	n := 0
	if !q.due.Load() && q.take(false) {
		q.hand.open(q, dst)
		q.src.Poll(1, &q.hand)
		n = q.hand.shut()
		q.leave()
	}
	if n < len(dst) && (q.opts.SolicitedOnly || q.due.Load()) {
		q.mu.Lock()
		n += q.takeLocked(dst[n:])
		q.mu.Unlock()
	}
	q.settle(dst[:n])
	return n
}

// Wait implements fabric.CQ.
func (q *Queue) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	invariant.Check(len(dst) > 0, "CQ.Wait without room for a completion")
	for {
		if q.due.Load() {
			if n, err, ok := q.result(dst); ok {
				q.settle(dst[:n])
				return n, err
			}
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if !q.take(true) {
			if err := q.nap(ctx); err != nil {
				return 0, err
			}
			continue
		}
		n, err := q.drive(ctx, dst)
		q.leave()
		if n > 0 {
			q.settle(dst[:n])
			return n, nil
		}
		if err != nil && !q.due.Load() {
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
	case q.Ripe():
		n = q.takeLocked(dst)
		q.wakeLocked() // somebody else may take the rest
		return n, nil, true
	case q.called:
		q.called = false
		q.dueLocked()
		return 0, nil, true
	}
	return 0, nil, false
}

// take takes the turn, also from the keeper. wait: the caller will wait for it.
func (q *Queue) take(wait bool) bool {
	if q.turn.Take() {
		return true
	}
	if !q.turn.Resting() || !q.keeper.Yield(wait) || !q.turn.Resume() {
		return false
	}
	q.keeper.Resume()
	return true
}

// Yielded is told by a keeper that has stopped because it was asked to.
func (q *Queue) Yielded() {
	if q.turn.Resume() {
		q.leave()
	}
}

// leave leaves the turn to who comes first, which is somebody who naps, if there is one.
func (q *Queue) leave() {
	if q.turn.Leave() {
		q.visits.Add(q)
	}
	if q.naps.Load() > 0 {
		q.mu.Lock()
		q.tokenLocked()
		q.mu.Unlock()
	}
}

// drive polls, for who has the turn, until there is something to take or ctx ends.
func (q *Queue) drive(ctx context.Context, dst []fabric.Completion) (n int, err error) {
	if ctx.Done() != nil {
		q.watch(ctx)
		defer q.unwatch()
	}
	q.hand.open(q, dst)
	q.spin.begin()
	for looks := 0; ; {
		did := q.src.Poll(looks, &q.hand)
		if q.hand.n > 0 || q.due.Load() {
			break
		}
		if did || q.spin.more() {
			looks = q.spin.looks()
			continue
		}
		if err = ctx.Err(); err != nil {
			break
		}
		if looks = 0; !q.sleep(ctx) {
			looks = 1
		}
	}
	if q.spin.paid() {
		q.spun.Add(1)
	}
	q.spin.end()
	return q.hand.shut(), err
}

// sleep sleeps in the source until there is something to poll or to take. It is false if there was
// something before it could.
func (q *Queue) sleep(ctx context.Context) bool {
	if !q.src.Arm() {
		q.src.Awake(false)
		return false
	}
	q.asleep.Store(true)
	if !q.due.Load() && ctx.Err() == nil {
		q.slept.Add(1)
		q.src.Sleep()
	}
	woken := !q.asleep.Swap(false)
	if woken {
		q.mu.Lock() // until whoever woke is through
		q.mu.Unlock()
	}
	q.src.Awake(woken)
	return true
}

// watch has the visitor look at the context of who has the turn, which costs neither a channel nor
// a goroutine.
func (q *Queue) watch(ctx context.Context) {
	q.mu.Lock()
	q.ctx = ctx
	q.mu.Unlock()
	if q.turn.Watch() {
		q.visits.Add(q)
	}
}

func (q *Queue) unwatch() {
	q.mu.Lock()
	q.ctx = nil
	q.mu.Unlock()
}

// watched tells the visitor whether who has the turn has a context, and wakes it when that has
// ended.
func (q *Queue) watched() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx == nil {
		return false
	}
	if q.ctx.Err() != nil {
		q.rouseLocked()
	}
	return true
}

// Look implements Visited.
func (q *Queue) Look() bool {
	switch q.turn.Look(q.watched) {
	case InUse:
		return false
	case Again:
		return true
	}
	if !q.keeper.Prepare() {
		q.turn.Leave() // it is visited already
		q.nudge()
		return true
	}
	q.turn.Rest()
	q.keeper.Keep()
	q.nudge()
	return false
}

// nudge lets one who naps look at the turn again, which the visitor has had for a moment.
func (q *Queue) nudge() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tokenLocked()
}

// nap sleeps until somebody leaves a token.
func (q *Queue) nap(ctx context.Context) (err error) {
	q.naps.Add(1)
	if !q.due.Load() && !q.turn.Free() { // who leaves the turn now sees who naps
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
	q.naps.Add(-1)
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
	q.dueLocked()
	return n
}

// dueLocked keeps due what it says.
func (q *Queue) dueLocked() bool {
	due := q.Ripe() || q.called || q.Closed()
	if q.due.Load() != due {
		q.due.Store(due)
	}
	return due
}

// Push adds a completion; solicited is that of a receive whose sender said so. It may be called by
// who has the turn and by anybody else.
func (q *Queue) Push(c *fabric.Completion, solicited bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Completions.Push(c, solicited) {
		q.wakeLocked()
	}
}

// wakeLocked wakes somebody if there is something to take.
func (q *Queue) wakeLocked() {
	if q.dueLocked() && !q.rouseLocked() {
		q.tokenLocked()
	}
}

// rouseLocked wakes who has the turn, if it sleeps.
func (q *Queue) rouseLocked() bool {
	if !q.asleep.CompareAndSwap(true, false) {
		return false
	}
	q.src.Wake()
	return true
}

// tokenLocked wakes one of those who nap.
func (q *Queue) tokenLocked() {
	if q.Closed() || q.naps.Load() == 0 {
		return
	}
	select {
	case q.token <- struct{}{}:
	default:
	}
}

// Ripen makes all that is there end a Wait, for a device that tells of solicited messages
// afterwards.
func (q *Queue) Ripen() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Completions.Ripen()
	q.wakeLocked()
}

// Kick makes who has the turn poll again, although no event came, if it sleeps.
func (q *Queue) Kick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rouseLocked()
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
		q.dueLocked()
		q.rouseLocked()
		close(q.token)
	}
	return nil
}
