package msg

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/msg/internal/marks"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// beginLocked fills a call with a request. The serverConn's lock is held.
func (c *Call) beginLocked(a *arrival) {
	c.ctx = c.ctx.Renew(time.Duration(a.header.DeadlineMs) * time.Millisecond)
	c.ctx.SetParker(c)
	if !a.waited.IsZero() {
		c.ctx.Fix(a.waited)
	}
	c.gen++
	c.active, c.round = true, nil
	c.ended.Store(false)
	c.refs.Store(1)
	if a.canceled {
		c.ctx.End(context.Canceled)
	}
	c.recv, c.header, c.body, c.inline = a.recv, a.header, a.body, a.inline
	c.marks, c.bad = marks.Parse(a.header.Pieces)
	c.unit = c.s.rung.limits.Unit
	c.high, c.lent, c.lentBytes, c.mapVersion = 0, 0, 0, 0
	if c.pushed.Load() {
		c.pushed.Store(false)
	}
}

// place sets a call's level and handler.
func (c *Call) place() {
	srv := c.s.srv
	level := Level(c.marks.Level)
	c.handler = srv.handler
	if v := srv.opts.serviceOf(c.header.Op); v != nil {
		level, c.handler = max(level, v.Level), v.Handler
	}
	c.level = int(min(level, Level(srv.node.opts.Queues-1)))
}

// decode reads the descriptions. Until then body begins with them.
func (c *Call) decode() error {
	if c.bad != nil {
		return c.bad
	}
	room := int64(c.s.msgBytes - replyBytes - minBody)
	body, err := segment.Decode(c.body, uint32(c.marks.Segments), int64(len(c.inline)), room,
		&c.out, &c.in)
	if err != nil {
		return err
	}
	if c.OneWay() && c.in.Present {
		return segment.Malformed("a one-way message with an answer")
	}
	if c.out.Eager {
		if err := c.s.useSlot(c); err != nil {
			return err
		}
	}
	c.body = body
	return nil
}

// near is request data that is in this side's memory already; nil where it has to be read from the
// client.
func (c *Call) near() []byte {
	switch {
	case c.out.Inline:
		return c.inline
	case c.out.Eager:
		return c.eager
	}
	return nil
}

// Header is the request's header. Like Body it is valid until Reply or Fail.
func (c *Call) Header() *wire.Header { return &c.header }

// Body is what the client passed as Request.Body.
func (c *Call) Body() []byte { return c.body }

// OutLen is how many bytes of request data can be pulled.
func (c *Call) OutLen() int64 { return c.out.Length }

// InLen is how many bytes of reply data can be pushed.
func (c *Call) InLen() int64 { return c.in.Length }

// Peer is the hello of the client.
func (c *Call) Peer() fabric.Peer { return c.s.ep.Peer() }

// Server is the one that runs the call.
func (c *Call) Server() *Server { return c.s.srv }

// Domain is the provider that the call came by.
func (c *Call) Domain() fabric.Domain { return c.s.rung.domain }

// SetUnit makes the parts in which the call moves data smaller than Limits.Unit, in bytes: for
// measuring.
func (c *Call) SetUnit(unit int) { c.unit = min(max(unit, minUnit), c.s.rung.limits.Unit) }

// SetMap has the answer, whatever it is, tell the client which version of the cluster's map this
// server knows. It costs nothing: the header has room for it.
func (c *Call) SetMap(version uint64) { c.mapVersion = version }

// OneWay tells whether nobody waits for the answer. Its body is dropped.
func (c *Call) OneWay() bool { return c.marks.Flags&marks.OneWay != 0 }

// Level is the service level that the call has here.
func (c *Call) Level() Level { return Level(c.level) }

// MaxReply is the largest body that Reply takes for this call.
func (c *Call) MaxReply() int {
	room := c.s.msgBytes - replyBytes
	if c.in.Inline {
		room -= int(c.in.Length)
	}
	return max(room, 0)
}

func (c *Call) live(op string) {
	if c.ended.Load() {
		invariant.Check(false, "%s after the call was answered", op)
	}
}

// beginLocked fills a call, unless its cancellation has overtaken it.
func (s *serverConn) beginLocked(c *Call, a *arrival) {
	if s.early[s.slotOf(a.header.RequestID)] == a.header.RequestID && a.header.RequestID != 0 {
		a.canceled = true
	}
	c.beginLocked(a)
	c.place()
}

// slotOf is the entry of an id in early: its low bits are the client's slot.
func (s *serverConn) slotOf(id uint64) int { return int(id & 0xffff % uint64(len(s.early))) }

// recycle frees a finished call, or gives it to the request that has waited longest.
func (s *serverConn) recycle(c *Call) {
	s.mu.Lock()
	if len(s.deferred) == 0 {
		s.free = append(s.free, c)
		s.mu.Unlock()
		s.leave()
		return
	}
	a := s.deferred[0]
	s.deferred = s.deferred[:copy(s.deferred, s.deferred[1:])]
	s.beginLocked(c, &a)
	s.mu.Unlock()
	s.leave() // for the finished request; the waiting one entered when it arrived
	s.srv.dispatch(c)
}
