package msg

import (
	"context"
	"sync"
	"time"
)

// callCtx is the context of one call at the server. It ends with the call, with the request's
// deadline, when the client cancels and when the connection dies. Most handlers only pass it
// down, so channel and timer are made when somebody first asks for Done; one that nobody
// asked is used again.
type callCtx struct {
	deadline time.Time // zero: none

	mu    sync.Mutex
	done  chan struct{}
	err   error
	timer *time.Timer
}

func (c *callCtx) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

func (c *callCtx) Value(any) any { return nil }

func (c *callCtx) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		c.endLocked(context.DeadlineExceeded)
	}
	return c.err
}

func (c *callCtx) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done != nil {
		return c.done
	}
	c.done = make(chan struct{})
	switch {
	case c.err != nil:
		close(c.done)
	case !c.deadline.IsZero():
		c.timer = time.AfterFunc(time.Until(c.deadline), func() { c.end(context.DeadlineExceeded) })
	}
	return c.done
}

// end ends the context. The first reason stays.
func (c *callCtx) end(err error) {
	c.mu.Lock()
	c.endLocked(err)
	c.mu.Unlock()
}

func (c *callCtx) endLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.done != nil {
		close(c.done)
	}
}

// renew returns a context for the next call: c itself when nobody can still watch it.
func (c *callCtx) renew(deadline time.Time) *callCtx {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done != nil {
		return &callCtx{deadline: deadline}
	}
	c.err, c.deadline = nil, deadline
	return c
}
