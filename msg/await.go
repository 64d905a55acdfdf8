package msg

import (
	"context"
	"sync/atomic"
	"time"
)

// polls says who empties the completion queue at the client. A caller that is alone polls for its
// own reply, so that nobody has to be woken on its behalf. When several wait, the connection's
// goroutine polls for all; when nobody does, it takes over after a while, to notice the end of
// the connection.
type polls struct {
	taken   atomic.Bool   // somebody polls
	waiting atomic.Int32  // slots in state slotWaiting; changed with Conn.mu, read without
	keep    atomic.Bool   // callers cannot poll: the goroutine should not let go
	need    chan struct{} // room for one: the goroutine should poll
	scratch poller        // belongs to who polls

	// ctx ends when a caller that polls without a deadline of its own has to look at its slot. Guarded
	// by Conn.mu.
	ctx    context.Context
	cancel context.CancelFunc
}

// How long nobody polls at most: idleAfter at first, and longer while callers are found polling,
// up to idleMax.
const (
	idleAfter = 5 * time.Millisecond
	idleMax   = 80 * time.Millisecond
)

// kickLocked makes a polling caller look at its slot.
func (c *Conn) kickLocked() {
	if c.polls.cancel != nil {
		c.polls.cancel()
	}
	c.polls.ctx, c.polls.cancel = context.WithCancel(context.Background())
}

// await waits for the reply, the end of ctx, the time limit or the end of the connection.
func (c *Conn) await(ctx context.Context, s *slot) error {
	done := ctx.Done()
	_, limited := ctx.Deadline()
	// The completion queue can watch one context only: the caller's, or that of the time limits.
	able := done == nil || limited
	if c.polls.keep.Load() == able {
		c.polls.keep.Store(!able)
	}
	for {
		if able && c.polls.taken.CompareAndSwap(false, true) {
			return c.pollFor(ctx, s)
		}
		if !able && !c.polls.taken.Load() {
			c.wakePoller()
		}
		select {
		case <-s.wake:
		case <-done:
			return ctx.Err()
		}
		if _, over, err := c.outcome(s); over {
			return err
		} // else the signal was meant for the request that had the slot before
	}
}

// outcome tells whether the wait for a slot is over. If not, ctx is what to poll under: it was
// taken together with the look at the slot, so no kick is missed.
func (c *Conn) outcome(s *slot) (ctx context.Context, over bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.polls.ctx, s.outcome != nil || s.state == slotAnswered, s.outcome
}

// pollFor polls until the caller's own wait is over.
func (c *Conn) pollFor(ctx context.Context, s *slot) error {
	defer c.unpoll()
	for {
		kick, over, err := c.outcome(s)
		if over {
			return err
		}
		if ctx.Done() != nil {
			kick = ctx
		}
		if err := c.poll(kick, &c.polls.scratch); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if kick.Err() == nil {
				c.fail(err) // the queue is closed: the outcome is that of the link
			}
		}
	}
}

// unpoll lets go, and leaves it to the goroutine if others wait. A caller that comes later has
// either counted itself before this looks, or finds that nobody polls.
func (c *Conn) unpoll() {
	c.polls.taken.Store(false)
	if c.polls.waiting.Load() > 0 {
		c.wakePoller()
	}
}

func (c *Conn) wakePoller() {
	select {
	case c.polls.need <- struct{}{}:
	default:
	}
}

// pollIdle is the connection's goroutine.
func (c *Conn) pollIdle() {
	if c.enter() != nil {
		return
	}
	defer c.leave()
	idle := idleAfter
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		select {
		case <-c.polls.need:
		case <-timer.C:
		case <-c.done:
			return
		}
		if c.polls.taken.CompareAndSwap(false, true) {
			c.pollAll()
			idle = idleAfter
		} else {
			idle = min(2*idle, idleMax)
		}
		timer.Reset(idle)
	}
}

// pollAll polls for everybody until nobody waits any more; the next caller may be alone again.
func (c *Conn) pollAll() {
	for {
		if err := c.poll(context.Background(), &c.polls.scratch); err != nil {
			c.fail(err)
			break
		}
		if c.polls.waiting.Load() == 0 && !c.polls.keep.Load() {
			break
		}
	}
	c.polls.taken.Store(false)
	if c.polls.waiting.Load() > 0 {
		c.wakePoller()
	}
}
