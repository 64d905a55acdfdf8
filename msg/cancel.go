package msg

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// This file is what becomes of a request at the client that nobody wants any more.

// askFirst cancels a request and waits for the answer, for a while, before its rights are revoked:
// where a refused access ends the connection, revoking under the server's hands would end all
// other requests with this one. A server that does not answer in time has to live with that.
func (c *Conn) askFirst(s *slot) {
	c.mu.Lock()
	s.untold = s.state == slotWaiting && s.outcome == nil
	c.mu.Unlock()
	c.tellCancels()
	c.duty.EnsurePolling() // nobody may be waiting for anything else
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

// abandon leaves a request behind. Slot and credit come back with the reply, if it still
// comes; when it is here already they come back now. The server is told if tell is set, as soon
// as it has acknowledged enough of what it was told before.
func (c *Conn) abandon(s *slot, tell bool) {
	defer c.leave()
	if s.window > 0 {
		c.credits.Give(0, s.window)
	}
	c.mu.Lock()
	if s.state == slotAnswered {
		c.mu.Unlock()
		c.late(s, s.recv, &s.header) // the answer was quicker than we are
		return
	}
	c.setLocked(s, slotAbandoned)
	s.untold = tell && !s.told
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
	c.credits.Give(credits, 0) // its part of the window came back when it was left behind
}

// tellCancels tells the server of requests that are not wanted any more, as many as it may be told.
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
		if s.state != slotAbandoned && s.state != slotWaiting || !s.untold {
			continue
		}
		s.untold, s.told = false, true
		c.cancels++
		buf = c.bufs.Send(len(c.slots) + c.next)
		c.next = (c.next + 1) % maxCancels
		return s.id, buf
	}
	return 0, nil
}
