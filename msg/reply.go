package msg

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// This file is what a client's poller does with messages: it passes replies to their callers.

func (c *Conn) received(p *poller, buf int, body, inline []byte) {
	h := &p.header
	switch h.Kind {
	case wire.KindReply:
		c.answered(buf, h, body, inline)
	case wire.KindControl:
		if !c.alivePing(buf, h) {
			c.control(buf, h, body)
		}
	default:
		c.unexpected(h)
	}
}

// answered finds the slot of a reply. An unknown id is forged: ids are ours, and a slot is
// not reused before its reply has come.
func (c *Conn) answered(buf int, h *wire.Header, body, inline []byte) {
	c.mu.Lock()
	i := int(h.RequestID & 0xffff)
	if i >= len(c.slots) || c.slots[i].id != h.RequestID || h.Credits > 1 {
		c.mu.Unlock()
		c.unexpected(h)
		return
	}
	s := &c.slots[i]
	switch s.state {
	case slotWaiting:
		c.setLocked(s, slotAnswered)
		s.recv, s.header = buf, *h
		s.body, s.inline = body, inline
		ready := s.ready
		c.mu.Unlock()
		if c.self == s { // its own caller polls
			c.hit = true
		} else {
			c.node.woken.Add(1)
			s.signal()
		}
		if ready != nil {
			ready()
		}
	case slotAbandoned:
		c.mu.Unlock()
		c.late(s, buf, h)
	default:
		c.mu.Unlock()
		c.unexpected(h)
	}
}

func (c *Conn) control(buf int, h *wire.Header, body []byte) {
	if h.Op == opGive {
		err := c.given(body)
		c.repost(buf)
		if err != nil {
			c.fail(err)
		}
		return
	}
	c.mu.Lock()
	ok := true
	switch h.Op {
	case opAck:
		ok = c.cancels > 0
		c.cancels--
	case opGoodbye:
		c.draining = true
	case opTake:
	default:
		ok = false
	}
	c.mu.Unlock()
	if !ok || h.Credits != 0 {
		c.unexpected(h)
		return
	}
	c.repost(buf)
	switch h.Op {
	case opTake:
		c.giveBack()
	case opAck:
		c.tellCancels()
	}
}

func (c *Conn) completed(comp *fabric.Completion) {
	i := int(comp.Context & 0xffff)
	if comp.Context&kindMask == kindFence && i < len(c.slots) && comp.Err == nil {
		select {
		case c.slots[i].fenced <- struct{}{}:
		default:
		}
		return
	}
	if comp.Err != nil {
		c.fail(comp.Err)
		return
	}
	c.fail(errs.Newf(errs.Protocol, "msg", c.name, "completion of unknown work %x", comp.Context))
}

func (c *Conn) died(err error) {
	c.credits.Close(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.slots {
		if s := &c.slots[i]; s.state == slotWaiting {
			s.outcome = err
			s.over()
		}
	}
}

// flushed has nothing to do: a client waits for completions only in fence, which link.ended ends.
func (c *Conn) flushed(error) {}

func (c *Conn) released() {
	c.node.forget(c)
}

// sweep ends the calls whose context has no deadline and that have waited for CallTimeout. A caller
// that polls is woken; if it still polls after PeerTimeout it is in the middle of a message whose
// peer has stopped sending.
func (c *Conn) sweep(now time.Time) {
	if c.enter() != nil {
		return
	}
	defer c.leave()
	expired, stuck := c.expire(now)
	if stuck {
		c.fail(errs.Newf(errs.TimedOut, "msg", c.name, "the peer does not answer"))
		return
	}
	if expired && c.duty.Taken() {
		c.cq.Wake()
	}
	c.keepAlive(now)
}

func (c *Conn) expire(now time.Time) (expired, stuck bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.slots {
		s := &c.slots[i]
		if s.state != slotWaiting || !s.timed {
			continue
		}
		if s.deadline.IsZero() {
			s.deadline = now.Add(c.node.opts.CallTimeout)
		}
		if now.Before(s.deadline) {
			continue
		}
		if s.outcome == nil {
			s.outcome = errs.New(errs.TimedOut, "msg", c.name, nil)
			s.over()
			expired = true
		}
		stuck = stuck || now.Sub(s.deadline) > c.node.opts.PeerTimeout
	}
	return expired, stuck
}
