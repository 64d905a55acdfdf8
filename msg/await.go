package msg

import (
	"context"
	"runtime"

	"github.com/sluice-storage/sluice/internal/wait"
)

// This file is how a client waits. Which goroutine polls is the Duty's decision (package progress):
// a caller that is alone polls for its own reply; the connection's goroutine, the standby, polls
// when several wait, and when nobody does, to notice the end of the connection.

// await waits for the reply, the end of ctx, the time limit or the end of the connection.
func (c *Conn) await(ctx context.Context, s *slot) error {
	if s.ready != nil {
		if over, err := c.outcome(s); over {
			return err
		}
	}
	for {
		if !s.patient && s.ready == nil && c.duty.Take() { // never with ProgressThread
			return c.pollFor(ctx, s)
		}
		if _, ok := wait.For(ctx, s.wake); !ok {
			return ctx.Err()
		}
		if over, err := c.outcome(s); over {
			return err
		} // else the signal was for an earlier request of the slot, or says: poll
	}
}

// pollFor polls until the caller's own wait is over.
func (c *Conn) pollFor(ctx context.Context, s *slot) error {
	defer c.leaveDuty()
	c.self, c.hit = s, false
	for {
		if over, err := c.outcome(s); over {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.poll(ctx, &c.scratch); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.fail(err) // the queue is closed: the outcome is that of the link
		} else if c.hit {
			return nil
		}
	}
}

// leaveDuty ends the duty. A later caller has either counted itself in waiting before this looks,
// or finds the duty free.
func (c *Conn) leaveDuty() {
	c.self = nil
	c.duty.Leave(false)
	if c.waiting.Load() == 0 {
		return
	}
	if c.node.opts.Progress != ProgressPoll || !c.wakeWaiting() {
		c.standby()
	}
}

// standby has the connection's goroutine poll.
func (c *Conn) standby() bool {
	select {
	case c.standbyWake <- struct{}{}:
	default:
	}
	return !c.over.Load()
}

// pressing tells whether a caller that never polls waits: it should hear of what has come as soon
// as those who do, who may all be gone.
func (c *Conn) pressing() bool { return c.patient.Load() > 0 }

// wakeWaiting makes one waiting caller poll for the others, if there is one that polls.
func (c *Conn) wakeWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.slots {
		if s := &c.slots[i]; s.state == slotWaiting && !s.patient && s.ready == nil {
			s.signal()
			return true
		}
	}
	return false
}

// pollOnDemand is the connection's goroutine.
func (c *Conn) pollOnDemand() {
	if c.enter() != nil {
		return
	}
	defer c.leave()
	if c.node.opts.Progress == ProgressThread {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		c.pollAll()            // it has the duty since the connection was made
		return
	}
	for {
		select {
		case <-c.standbyWake:
		case <-c.done:
			return
		}
		if c.duty.Take() {
			c.pollAll()
		}
	}
}

// pollAll polls for all callers until none waits any more.
func (c *Conn) pollAll() {
	for {
		if err := c.poll(context.Background(), &c.scratch); err != nil {
			c.fail(err)
			break
		}
		if c.waiting.Load() == 0 && c.node.opts.Progress != ProgressThread {
			break
		}
	}
	c.leaveDuty()
}
