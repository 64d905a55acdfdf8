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
// used again. Even the clock is looked at only when somebody asks, or when the request has to wait:
// that is as good as its arrival, because nothing takes long in between.
type callCtx struct {
	limit   time.Duration // 0: none
	state   atomic.Int32
	watched atomic.Bool // Done was asked for
	fixed   atomic.Bool // deadline is set, and does not change

	mu       sync.Mutex
	deadline time.Time
	done     chan struct{}
	timer    *time.Timer
}

// The states of a callCtx.
const (
	ctxLive int32 = iota
	ctxCanceled
	ctxExpired
)

func (c *callCtx) Deadline() (time.Time, bool) {
	if c.limit == 0 {
		return time.Time{}, false
	}
	return c.fix(time.Time{}), true
}

// fix sets the deadline, if it is not set, from the request's arrival; the zero time means now.
func (c *callCtx) fix(arrived time.Time) time.Time {
	if c.fixed.Load() {
		return c.deadline
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fixLocked(arrived)
}

func (c *callCtx) fixLocked(arrived time.Time) time.Time {
	if !c.fixed.Load() {
		if arrived.IsZero() {
			arrived = time.Now()
		}
		c.deadline = arrived.Add(c.limit)
		c.fixed.Store(true)
	}
	return c.deadline
}

func (c *callCtx) Value(any) any { return nil }

func (c *callCtx) Err() error {
	if c.limit != 0 && c.state.Load() == ctxLive && !time.Now().Before(c.fix(time.Time{})) {
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
	case c.limit != 0:
		left := time.Until(c.fixLocked(time.Time{}))
		c.timer = time.AfterFunc(left, func() { c.end(context.DeadlineExceeded) })
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
func (c *callCtx) renew(limit time.Duration) *callCtx {
	if c.watched.Load() {
		return &callCtx{limit: limit}
	}
	c.limit = limit
	if c.fixed.Load() {
		c.fixed.Store(false)
	}
	c.state.Store(ctxLive)
	return c
}
