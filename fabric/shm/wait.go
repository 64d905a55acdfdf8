package shm

import (
	"context"
	"sync/atomic"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Who looks after the rings. One waiter of a queue holds its role: it polls the rings of the
// queue's endpoints, first briskly and then not at all, when it sleeps on a futex or, where too
// many do that, until a note comes through a socket. The other waiters nap until it leaves them
// something, or the role. Who leaves Wait lets the role go, and mostly comes back for it at once.
// If nobody takes it for one to two visits the watch arms the endpoints: from then on notes
// come through the sockets, whose readers serve the endpoints (sock.go), until somebody waits
// again.
//
// Anybody may make progress at any time; the role only says who sleeps, and how.

type holder uint8

const (
	nobody holder = iota // not armed: the watch knows
	armed
	waiter
)

func (q *cq) Poll(dst []fabric.Completion) int {
	q.mu.Lock()
	if q.by != waiter && !q.Closed() {
		were := q.takeRoleLocked()
		q.mu.Unlock()
		if were == armed {
			q.disarm()
		}
		q.hand.open(q, dst)
		q.advance()
		n := q.hand.shut()
		q.mu.Lock()
		q.letGoLocked()
		n += q.takeLocked(dst[n:])
		q.mu.Unlock()
		settle(dst[:n])
		return n
	}
	n := q.takeLocked(dst)
	q.mu.Unlock()
	settle(dst[:n])
	return n
}

func (q *cq) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	invariant.Check(len(dst) > 0, "CQ.Wait without room for a completion")
	q.mu.Lock()
	for {
		if n, err, ok := q.resultLocked(dst); ok {
			q.mu.Unlock()
			settle(dst[:n])
			return n, err
		}
		var err error
		if q.by == waiter {
			err = q.napLocked(ctx)
		} else {
			were := q.takeRoleLocked()
			q.mu.Unlock()
			q.hand.open(q, dst)
			err = q.drive(ctx, were)
			n := q.hand.shut()
			q.mu.Lock()
			q.letGoLocked()
			if n > 0 {
				q.wakeLocked()
				q.mu.Unlock()
				settle(dst[:n])
				return n, nil
			}
		}
		if err != nil && !q.Ripe() {
			q.mu.Unlock()
			return 0, err
		}
	}
}

// resultLocked is what Wait returns, if it can.
func (q *cq) resultLocked(dst []fabric.Completion) (n int, err error, ok bool) {
	switch {
	case q.Closed():
		return 0, q.ClosedErr(), true
	case q.Ripe():
		n = q.takeLocked(dst)
		q.wakeLocked()
		return n, nil, true
	case q.called:
		q.called = false
		q.dueLocked()
		return 0, nil, true
	}
	return 0, nil, false
}

func (q *cq) takeRoleLocked() (were holder) {
	were = q.by
	q.by = waiter
	q.turns++
	return were
}

// letGoLocked leaves the role to who comes first.
func (q *cq) letGoLocked() {
	q.by = nobody
	q.turns++
	q.tokenLocked()
	if len(*q.eps.Load()) == 0 {
		q.by = armed // endpoints come armed
		return
	}
	if !q.watched {
		q.watched, q.seen = true, q.turns
		q.d.watch.Add(q)
	}
}

// asleep tells whether the endpoints of the queue must be armed: nobody is awake to poll them.
func (q *cq) asleep() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.by == armed || q.by == waiter && q.resting
}

// napLocked sleeps until somebody leaves a token, while another waiter holds the role, or the
// endpoints are armed. It enters and leaves with mu.
func (q *cq) napLocked(ctx context.Context) (err error) {
	q.sleepers++
	if !q.dueLocked() {
		q.mu.Unlock()
		if done := ctx.Done(); done == nil {
			<-q.wake
		} else {
			select {
			case <-q.wake:
			case <-done:
				err = ctx.Err()
			}
		}
		q.mu.Lock()
	}
	q.sleepers--
	if err != nil {
		q.wakeLocked() // the token may have been meant for this one
	}
	return err
}

// advance makes progress on all endpoints, and tells whether there was any.
func (q *cq) advance() bool {
	did := false
	for _, e := range *q.eps.Load() {
		if e.tryProgress(&q.hand) {
			did = true
		}
	}
	return did
}

func (q *cq) disarm() {
	for _, e := range *q.eps.Load() {
		e.disarm()
	}
}

// drive polls, for who holds the role, until there is something to take or ctx ends.
func (q *cq) drive(ctx context.Context, were holder) error {
	if were == armed {
		q.disarm()
	}
	q.brisk.start()
	defer q.end()
	for {
		did := q.advance()
		if q.hand.n > 0 || q.due.Load() {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if did || q.spin() {
			continue
		}
		if err := q.sleep(ctx); err != nil {
			return err
		}
	}
}

// sleep arms the endpoints and sleeps, on a futex if there is a bed.
func (q *cq) sleep(ctx context.Context) error {
	eps := *q.eps.Load()
	how := uint32(bySocket)
	if len(eps) > 0 && len(eps) < waitMax && q.d.beds.take() {
		how = byFutex
		defer q.d.beds.giveBack()
	}
	q.setResting(true)
	defer q.setResting(false)
	defer q.disarm()
	q.list = append(q.list[:0], futexWaiter{})
	for _, e := range eps {
		word, quiet := e.arm(how)
		if !quiet {
			return nil
		}
		if word != 0 {
			q.list = append(q.list, futexWaiter{})
			q.list[len(q.list)-1].set(e.sleep, word, false)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if how == byFutex {
		q.dozeLocked(ctx)
		return nil
	}
	return q.napLocked(ctx)
}

// setResting comes before the first endpoint is armed: who serves one of them afterwards arms it
// again.
func (q *cq) setResting(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.resting = on
}

// dozeLocked sleeps on the futexes of the endpoints and on the queue's own.
func (q *cq) dozeLocked(ctx context.Context) {
	if q.dueLocked() {
		return
	}
	q.dozing = true
	q.list[0].set(&q.bell, q.bell.Load(), true)
	q.mu.Unlock()
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, q.rouse)
	}
	if !futexWait(q.list) {
		q.d.beds.none()
	}
	stop()
	q.mu.Lock()
	q.dozing = false
}

func (q *cq) rouse() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dozing {
		q.rouseLocked()
	}
}

// rest arms the endpoints for the watch, because nobody has come for the role, and tells whether
// they are quiet.
func (q *cq) rest() bool {
	quiet := true
	for _, e := range *q.eps.Load() {
		e.progress()
		if _, ok := e.arm(bySocket); !ok {
			quiet = false
		}
	}
	return quiet
}

// Look is the watch's visit: it arms the endpoints if nobody has had the role since the last one,
// and tells whether to come again.
func (q *cq) Look() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.Closed() || q.by != nobody: // letting go reports it anew
		q.watched = false
		return false
	case q.turns != q.seen:
		q.seen = q.turns
		return true
	}
	q.takeRoleLocked()
	q.resting = true
	q.mu.Unlock()
	quiet := q.rest()
	q.mu.Lock()
	q.by, q.resting = nobody, false
	q.turns++
	q.seen = q.turns
	if quiet {
		q.by = armed
		q.watched = false
	}
	q.tokenLocked()
	return !quiet
}

// waitMax is how many words one futex_waitv takes.
const waitMax = 128

// beds counts those who sleep on futexes: each holds a thread.
type beds struct{ free atomic.Int32 }

func (b *beds) open(n int) { b.free.Store(int32(max(n, 0))) }

func (b *beds) take() bool {
	for {
		n := b.free.Load()
		if n <= 0 {
			return false
		}
		if b.free.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

func (b *beds) giveBack() { b.free.Add(1) }

// none says that the kernel has no such futexes: far from free for ever.
func (b *beds) none() { b.free.Store(-1 << 30) }
