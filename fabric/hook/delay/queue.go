package delay

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// spinTime is how close a due time must be for a waiter to poll instead of sleeping, unless the
// queue's Spin says otherwise: less than a timer can do.
const spinTime = 50 * time.Microsecond

// never is the due time of nothing.
const never = int64(1<<63 - 1)

// queue holds completions back. Its pump moves them from the queue below into lanes, with the time
// at which they may go; Poll and Wait take what is due. One token in wake makes one sleeper look
// again; who leaves passes it on.
type queue struct {
	*hook.CQ
	d         *Domain
	depth     int
	solicited bool
	spin      int64
	rng       *rand.Rand    // the pump's
	waker     fabric.Waker  // the queue below, if it is one
	wake      chan struct{} // holds one token; closed by Close
	ended     chan struct{} // the pump has
	taken     atomic.Int64  // places, of depth

	mu       sync.Mutex
	lanes    lanes
	strays   lane // completions of endpoints that are forgotten
	sleepers int
	called   bool // Wake was called
	closed   bool
	timers   []*time.Timer // unused ones of waiters

	// A SolicitedOnly queue lets Wait have completions at loud, when the last of those that came
	// with a solicited one is due, and until there is nothing due any more; next is the loud after
	// that.
	loud, next int64
	open       bool

	// catchUp asks, the pump answers, for the last time when it is told so.
	answer          sync.Cond
	asked, answered uint64
	last, retired   bool
}

func (d *Domain) newQueue(base *hook.CQ, opts fabric.CQOptions) fabric.CQ {
	q := &queue{
		CQ: base, d: d, depth: opts.Depth, spin: int64(spinTime),
		wake: make(chan struct{}, 1), ended: make(chan struct{}), loud: never, next: never,
	}
	q.answer.L = &q.mu
	q.strays.index = -1
	q.waker, _ = base.Inner().(fabric.Waker)
	q.solicited = opts.SolicitedOnly && q.waker != nil
	if opts.Spin != 0 {
		q.spin = int64(max(opts.Spin, 0))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
	q.rng = rand.New(rand.NewPCG(d.opts.Seed, d.made))
	if q.retired = d.closed; q.retired { // nothing will ever come
		close(q.ended)
		return q
	}
	d.queues[q] = struct{}{}
	go q.pump()
	return q
}

// reserve sets places aside.
func (q *queue) reserve(places int) error {
	for {
		taken := q.taken.Load()
		if int64(places) > int64(q.depth)-taken {
			return errs.Newf(errs.Invalid, "delay.CQ", "",
				"depth %d is too small: %d taken, %d more wanted", q.depth, taken, places)
		}
		if q.taken.CompareAndSwap(taken, taken+int64(places)) {
			return nil
		}
	}
}

// Poll implements fabric.CQ.
func (q *queue) Poll(dst []fabric.Completion) int {
	if q.solicited { // the pump sleeps until there is something solicited
		q.catchUp()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeLocked(q.d.now(), dst)
}

// takeLocked hands out what is due.
func (q *queue) takeLocked(now int64, dst []fabric.Completion) int {
	n := 0
	for n < len(dst) {
		l, it, ok := q.lanes.next(now)
		if !ok {
			break
		}
		dst[n] = it.c
		n++
		if l.ep != nil {
			l.ep.settle(l.recv, it.places)
		}
	}
	return n
}

// Wait implements fabric.CQ.
func (q *queue) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	invariant.Check(len(dst) > 0, "CQ.Wait without room for a completion")
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed {
			return 0, errs.New(errs.Closed, "delay.Wait", "", nil)
		}
		now := q.d.now()
		if n := q.takeWaitedLocked(now, dst); n > 0 {
			q.wakeLocked()
			return n, nil
		}
		if err := ctx.Err(); err != nil {
			q.wakeLocked() // the token may have been meant for this one
			return 0, err
		}
		if q.called {
			q.called = false
			q.wakeLocked()
			return 0, nil
		}
		q.sleepLocked(ctx, q.dueLocked()-now)
	}
}

// takeWaitedLocked is takeLocked for Wait, which may have to leave things alone.
func (q *queue) takeWaitedLocked(now int64, dst []fabric.Completion) int {
	if !q.solicited {
		return q.takeLocked(now, dst)
	}
	if now >= q.loud {
		q.open, q.loud, q.next = true, q.next, never
	}
	if !q.open {
		return 0
	}
	n := q.takeLocked(now, dst)
	if n < len(dst) {
		q.open = false
	}
	return n
}

// dueLocked is when a waiter has to look again, if nothing comes before.
func (q *queue) dueLocked() int64 {
	switch {
	case q.solicited:
		return q.loud
	case len(q.lanes) == 0:
		return never
	}
	return q.lanes[0].due()
}

// wakeLocked calls a sleeper, if there is anything for it to wait for.
func (q *queue) wakeLocked() {
	if q.closed || q.sleepers == 0 || len(q.lanes) == 0 && !q.called {
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// sleepLocked gives the lock up until somebody calls, ctx ends or the time is over.
func (q *queue) sleepLocked(ctx context.Context, ns int64) {
	q.sleepers++
	var timer *time.Timer
	if n := len(q.timers); n > 0 && ns > q.spin {
		timer, q.timers = q.timers[n-1], q.timers[:n-1]
	}
	q.mu.Unlock()
	var at <-chan time.Time
	switch {
	case ns <= q.spin:
		q.spinUntil(ctx, q.d.now()+ns)
	case ns < never/2: // else there is nothing to wait for
		if timer == nil {
			timer = time.NewTimer(time.Duration(ns))
		} else {
			timer.Reset(time.Duration(ns))
		}
		at = timer.C
	}
	if ns > q.spin {
		select {
		case <-q.wake:
		case <-at:
		case <-ctx.Done():
		}
	}
	if timer != nil {
		timer.Stop()
	}
	q.mu.Lock()
	if timer != nil {
		q.timers = append(q.timers, timer)
	}
	q.sleepers--
}

func (q *queue) spinUntil(ctx context.Context, due int64) {
	for q.d.now() < due && ctx.Err() == nil {
		select {
		case <-q.wake:
			return
		default:
			runtime.Gosched()
		}
	}
}

// Wake implements fabric.Waker.
func (q *queue) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.called = true
	q.wakeLocked()
}

// Close implements fabric.CQ.
func (q *queue) Close() error {
	q.mu.Lock()
	first := !q.closed
	if first {
		q.closed = true
		q.lanes = nil
		close(q.wake)
		q.answer.Broadcast()
	}
	q.mu.Unlock()
	err := q.CQ.Close()
	<-q.ended
	if first {
		q.d.mu.Lock()
		delete(q.d.queues, q)
		q.d.mu.Unlock()
	}
	return err
}
