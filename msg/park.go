package msg

import (
	"context"

	"github.com/sluice-storage/sluice/internal/gate"
)

// This file is for handlers that wait for other clients.

// Park gives the call's admission back (ServeOptions.MaxCalls) while its handler waits for what
// another request brings: so that those who wait never keep out the one that they wait for. It also
// does what Waits does. The call keeps its credit, its goroutine and its context. When the server
// drains, the context of a parked call ends: nobody waits for it. A call that is parked is answered
// as any other, or goes on by Unpark. Not safe for concurrent use with itself or Unpark.
func (c *Call) Park() {
	s := c.s.srv
	c.Waits()
	if c.parked.Swap(true) {
		return
	}
	s.parked.Add(1)
	if s.calls != nil {
		s.calls.Leave(&c.ticket)
	}
	if s.draining.Load() {
		c.ctx.End(context.Canceled)
	}
}

// Unpark waits for an admission again, like a request that has just come. An error means that there
// is none: the context has ended, or the server drains. The call stays parked then.
func (c *Call) Unpark(ctx context.Context) error {
	s := c.s.srv
	if !c.parked.Load() {
		return nil
	}
	if s.calls != nil {
		r := gate.Request{Client: gate.Client{ID: c.s.id}, Level: c.level}
		if err := s.calls.Enter(ctx, &c.ticket, r); err != nil {
			return err
		}
	}
	c.parked.Store(false)
	s.parked.Add(-1)
	return nil
}

// giveUp ends the admission of a call whose handler has returned.
func (c *Call) giveUp() {
	switch s := c.s.srv; {
	case c.parked.Load():
		c.parked.Store(false)
		s.parked.Add(-1)
	case s.calls != nil:
		s.calls.Leave(&c.ticket)
	}
}

// endParked ends the contexts of parked calls.
func (s *serverConn) endParked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.calls {
		if c := &s.calls[i]; c.active && c.parked.Load() {
			c.ctx.End(context.Canceled)
		}
	}
}
