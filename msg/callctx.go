package msg

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// callCtx is the context of one call at the server. It ends with the call, with the request's
// deadline, when the client cancels and when the connection dies. Most handlers only pass it
// down, so channel and timer are made when somebody first asks for Done; one that nobody asked is
// used again.
type callCtx struct {
	deadline time.Time // zero: none
	state    atomic.Int32
	watched  atomic.Bool // Done was asked for

	mu    sync.Mutex
	done  chan struct{}
	timer *time.Timer
}

// The states of a callCtx.
const (
	ctxLive int32 = iota
	ctxCanceled
	ctxExpired
)

func (c *callCtx) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

func (c *callCtx) Value(any) any { return nil }

func (c *callCtx) Err() error {
	if c.state.Load() == ctxLive && !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		c.end(context.DeadlineExceeded)
	}
	return c.over()
}

// over is Err without a look at the clock.
func (c *callCtx) over() error {
	switch c.state.Load() {
	case ctxCanceled:
		return context.Canceled
	case ctxExpired:
		return context.DeadlineExceeded
	}
	return nil
}

func (c *callCtx) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done != nil {
		return c.done
	}
	c.done = make(chan struct{})
	c.watched.Store(true) // before the look at state: end looks the other way round
	switch {
	case c.state.Load() != ctxLive:
		close(c.done)
	case !c.deadline.IsZero():
		c.timer = time.AfterFunc(time.Until(c.deadline), func() { c.end(context.DeadlineExceeded) })
	}
	return c.done
}

// end ends the context. The first reason stays.
func (c *callCtx) end(err error) {
	to := ctxCanceled
	if err == context.DeadlineExceeded {
		to = ctxExpired
	}
	if !c.state.CompareAndSwap(ctxLive, to) || !c.watched.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	select {
	case <-c.done: // by Done, which came between
	default:
		close(c.done)
	}
}

// renew returns a context for the next call: c itself when nobody can still watch it.
func (c *callCtx) renew(deadline time.Time) *callCtx {
	if c.watched.Load() {
		return &callCtx{deadline: deadline}
	}
	c.deadline = deadline
	c.state.Store(ctxLive)
	return c
}
