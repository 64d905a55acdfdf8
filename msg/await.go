package msg

import (
	"context"
	"runtime"
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
	need    chan struct{} // room for one: the goroutine should poll
	scratch poller        // belongs to who polls
	self    *slot         // likewise: whose caller that is; nil for the goroutine
	hit     bool          // likewise: its answer is here
}

// How long nobody polls at most: idleAfter at first, and longer while callers are found polling,
// up to idleMax.
const (
	idleAfter = 5 * time.Millisecond
	idleMax   = 80 * time.Millisecond
)

// await waits for the reply, the end of ctx, the time limit or the end of the connection.
func (c *Conn) await(ctx context.Context, s *slot) error {
	for {
		if c.polls.taken.CompareAndSwap(false, true) { // never with ProgressThread
			return c.pollFor(ctx, s)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		if over, err := c.outcome(s); over {
			return err
		} // else the signal was meant for the request that had the slot before
	}
}

// outcome tells whether the wait for a slot is over.
func (c *Conn) outcome(s *slot) (over bool, err error) {
	c.mu.Lock()
	over, err = s.outcome != nil || s.state == slotAnswered, s.outcome
	c.mu.Unlock()
	return over, err
}

// pollFor polls until the caller's own wait is over.
func (c *Conn) pollFor(ctx context.Context, s *slot) error {
	defer c.unpoll()
	c.polls.self, c.polls.hit = s, false
	for {
		if over, err := c.outcome(s); over {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.poll(ctx, &c.polls.scratch); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.fail(err) // the queue is closed: the outcome is that of the link
		} else if c.polls.hit {
			return nil
		}
	}
}

// unpoll lets go, and leaves it to the goroutine if others wait. A caller that comes later has
// either counted itself before this looks, or finds that nobody polls.
func (c *Conn) unpoll() {
	c.polls.self = nil
	c.polls.taken.Store(false)
	if c.polls.waiting.Load() == 0 {
		return
	}
	if c.node.opts.Progress == ProgressPoll {
		c.wakeWaiting()
	} else {
		c.wakePoller()
	}
}

// wakeWaiting lets one of those who wait poll for the others.
func (c *Conn) wakeWaiting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.slots {
		if s := &c.slots[i]; s.state == slotWaiting {
			s.signal()
			return
		}
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
	if c.node.opts.Progress == ProgressThread {
		runtime.LockOSThread() // for good: it ends with the goroutine
		c.pollAll()
		return
	}
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
		if c.polls.waiting.Load() == 0 && c.node.opts.Progress != ProgressThread {
			break
		}
	}
	c.polls.taken.Store(false)
	if c.polls.waiting.Load() > 0 {
		c.wakePoller()
	}
}
