package msg

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// This file is how a client cancels requests.

// cancelAndWait cancels a request and waits for the answer, up to CancelGrace, before its rights
// are revoked: where a refused access ends the connection, revoking while the server moves data
// would end all other requests with this one. If the server does not answer in time that may
// happen.
func (c *Conn) cancelAndWait(s *slot) {
	c.mu.Lock()
	s.cancelDue = s.state == slotWaiting && s.outcome == nil
	c.mu.Unlock()
	c.tellCancels()
	c.duty.EnsurePolling() // no other caller may be polling
	limit := time.NewTimer(c.node.opts.CancelGrace)
	defer limit.Stop()
	for {
		if over, _ := c.outcome(s); over {
			return
		}
		select {
		case <-s.wake:
		case <-c.done:
			return
		case <-limit.C:
			return
		}
	}
}

// abandon gives up a request. Slot and credit come back with the reply; if it is here already they
// come back now. If tell is set a cancellation is sent, as soon as the server has acknowledged
// enough of the earlier ones.
func (c *Conn) abandon(s *slot, tell bool) {
	defer c.leave()
	if s.window > 0 {
		c.credits.Give(0, s.window)
	}
	c.mu.Lock()
	if s.state == slotAnswered {
		c.mu.Unlock()
		c.late(s, s.recv, &s.header) // the reply came first
		return
	}
	c.setLocked(s, slotAbandoned)
	s.cancelDue = tell && !s.cancelSent
	c.mu.Unlock()
	c.tellCancels()
}

// late drops the reply to a request that nobody waits for any more.
func (c *Conn) late(s *slot, buf int, h *wire.Header) {
	status, credits := h.Status, int(h.Credits) // h may lie in the slot
	if status != errs.OK {
		c.node.lateFailures.Add(1)
	}
	c.repost(buf)
	c.release(s)
	c.credits.Give(credits, 0) // its part of the window came back in abandon
}

// tellCancels sends the cancellations that are due, while less than maxCancels are unacknowledged.
func (c *Conn) tellCancels() {
	for {
		c.mu.Lock()
		id, buf := c.nextCancelLocked()
		c.mu.Unlock()
		if buf == nil || c.sendControl(buf, opCancel, id) != nil { // a failure ends the link
			return
		}
	}
}

func (c *Conn) nextCancelLocked() (id uint64, buf []byte) {
	if c.cancels == maxCancels {
		return 0, nil
	}
	for i := range c.slots {
		s := &c.slots[i]
		if s.state != slotAbandoned && s.state != slotWaiting || !s.cancelDue {
			continue
		}
		s.cancelDue, s.cancelSent = false, true
		c.cancels++
		buf = c.bufs.Send(len(c.slots) + c.next)
		c.next = (c.next + 1) % maxCancels
		return s.id, buf
	}
	return 0, nil
}
