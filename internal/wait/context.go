package wait

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Context is the context of one request after the other. It ends with a deadline, or by End. It is
// reused for the next request, with its channel and timer, unless something may still listen to it:
//
//   - Most handlers only pass it down. Channel and timer are made when it is first listened to, and
//     even the clock is read only when the deadline is asked for, or when the request has to wait:
//     that is soon after its arrival.
//   - Waits of this package borrow the channel (see Lender). When all of them have returned it, it
//     need not be closed, and serves the next request.
//   - A channel that was returned by Done may be listened to for ever. It is closed at the end of
//     the call at the latest, and the context is not reused.
type Context struct {
	limit   time.Duration // 0: none
	state   atomic.Int32
	watched atomic.Bool // the channel was asked for
	parker  Parker      // who serves the request
	values  context.Context
	parent  Parent      // it ends with this one; nil: none
	fixed   atomic.Bool // deadline is set, and does not change

	mu       sync.Mutex
	deadline time.Time
	done     chan struct{}
	timer    *time.Timer
	armed    bool
	lent     int  // listeners that will call Return
	spent    bool // cannot be used again: others may listen, or somebody may be about to end it
	closed   bool
	adopted  bool       // parent ends it
	below    []*Context // those that end with this one
}

// The states of a Context.
const (
	ctxLive int32 = iota
	ctxCanceled
	ctxExpired
)

func (c *Context) Deadline() (time.Time, bool) {
	if c.limit == 0 {
		return time.Time{}, false
	}
	return c.Fix(time.Time{}), true
}

// Fix sets the deadline, if it is not set, from the request's arrival; the zero time means now.
func (c *Context) Fix(arrived time.Time) time.Time {
	if c.fixed.Load() {
		return c.deadline
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fixLocked(arrived)
}

func (c *Context) fixLocked(arrived time.Time) time.Time {
	if !c.fixed.Load() {
		if arrived.IsZero() {
			arrived = time.Now()
		}
		c.deadline = arrived.Add(c.limit)
		c.fixed.Store(true)
	}
	return c.deadline
}

func (c *Context) Value(key any) any {
	if _, ok := key.(parkerKey); ok && c.parker != nil {
		return c.parker
	}
	if c.values != nil {
		return c.values.Value(key)
	}
	return nil
}

// within are Contexts that no request uses.
var within = sync.Pool{New: func() any { return new(Context) }}

// Within returns a context that ends with a limit, counted from since, and has the values of
// another one, which has no end. It is the caller's until Release.
func Within(values context.Context, since time.Time, limit time.Duration) *Context {
	c := within.Get().(*Context).Renew(max(limit, 1))
	c.values = values
	c.Fix(since)
	return c
}

// Parent is a context that ends others made Below it, without a goroutine that waits for it. A
// Context is one, and so is what embeds it.
type Parent interface {
	context.Context
	// Adopt has c ended with the parent; false: that has ended.
	Adopt(c *Context) bool
	// Disown undoes it; false: c is being ended, and must not be used again.
	Disown(c *Context) bool
}

// Below is Within for a context that has an end: with that it ends too.
func Below(p Parent, since time.Time, limit time.Duration) *Context {
	c := Within(p, since, limit)
	c.parent = p
	return c
}

// Release ends a context that Within or Below has returned. Who has asked for its Done, such as a
// context that was made of it, may look at it for ever: then it is not used again.
func (c *Context) Release() {
	c.End(context.Canceled)
	c.mu.Lock()
	c.disarmLocked() // somebody else may be just ending it
	again := !c.spent && c.lent == 0
	c.mu.Unlock()
	if again {
		c.values, c.parent = nil, nil
		within.Put(c)
	}
}

// Adopt implements Parent.
func (c *Context) Adopt(child *Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched.Store(true) // before the look at state, as in listenLocked
	if c.state.Load() != ctxLive {
		return false
	}
	c.below = append(c.below, child)
	return true
}

// Disown implements Parent.
func (c *Context) Disown(child *Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.below, child)
	if i < 0 {
		return false
	}
	c.below = slices.Delete(c.below, i, i+1)
	return true
}

// Unused tells whether nothing can look at a context any more that has ended.
func (c *Context) Unused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.spent && c.lent == 0
}

// SetParker says who serves the request. It must be set before the context is passed on.
func (c *Context) SetParker(p Parker) { c.parker = p }

// Parker is who serves a request and can do something else while it waits: see msg.Call.
type Parker interface {
	Waits()
	Park()
	Unpark(ctx context.Context) error
}

// Blocker is a Parker that wants to hear of every wait of its request that lasts. It is told by a
// goroutine that holds no lock.
type Blocker interface{ Blocks() }

// parkerKey is the key of a context's Parker.
type parkerKey struct{}

// ParkerOf finds who serves the request of a context; nil: nobody.
func ParkerOf(ctx context.Context) Parker {
	p, _ := ctx.Value(parkerKey{}).(Parker)
	return p
}

// Announce says that the request of a context is about to wait for something that may take long.
func Announce(ctx context.Context) {
	if p := ParkerOf(ctx); p != nil {
		p.Waits()
	}
}

// Alone is a context without a Parker, for one of several goroutines that serve one request.
func Alone(ctx context.Context) context.Context {
	return context.WithValue(ctx, parkerKey{}, nil)
}

func (c *Context) Err() error {
	if c.limit != 0 && c.state.Load() == ctxLive && !time.Now().Before(c.Fix(time.Time{})) {
		c.End(context.DeadlineExceeded)
	}
	if c.parent != nil && c.state.Load() == ctxLive && c.parent.Err() != nil {
		c.End(c.parent.Err())
	}
	return c.Ended()
}

// Ended is Err without a look at the clock.
func (c *Context) Ended() error {
	switch c.state.Load() {
	case ctxCanceled:
		return context.Canceled
	case ctxExpired:
		return context.DeadlineExceeded
	}
	return nil
}

// Done returns a channel that may be listened to for ever: the context is not reused then.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent = true
	return c.listenLocked()
}

// Lend implements wait.Lender.
func (c *Context) Lend() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lent++
	return c.listenLocked()
}

// Return implements wait.Lender.
func (c *Context) Return() {
	c.mu.Lock()
	c.lent--
	c.mu.Unlock()
}

// listenLocked makes sure that a channel is there which tells of the end, by time too.
func (c *Context) listenLocked() <-chan struct{} {
	if c.done == nil {
		c.done = make(chan struct{})
	}
	c.watched.Store(true) // before the look at state: End looks the other way round
	if c.parent != nil && !c.adopted && c.state.Load() == ctxLive {
		if c.adopted = c.parent.Adopt(c); !c.adopted {
			c.state.CompareAndSwap(ctxLive, ctxCanceled)
		}
	}
	switch {
	case c.state.Load() != ctxLive:
		c.closeLocked()
	case c.limit != 0 && !c.armed:
		c.armed = true
		left := time.Until(c.fixLocked(time.Time{}))
		if c.timer == nil {
			c.timer = time.AfterFunc(left, c.expire)
		} else {
			c.timer.Reset(left)
		}
	}
	return c.done
}

func (c *Context) expire() { c.End(context.DeadlineExceeded) }

// End ends the context: err is context.Canceled or context.DeadlineExceeded. The first reason is
// kept.
func (c *Context) End(err error) {
	to := ctxCanceled
	if err == context.DeadlineExceeded {
		to = ctxExpired
	}
	if !c.state.CompareAndSwap(ctxLive, to) || !c.watched.Load() {
		return
	}
	c.mu.Lock()
	if c.state.Load() == ctxLive {
		c.mu.Unlock()
		return // the context serves another request by now
	}
	c.disarmLocked()
	if c.lent > 0 || c.spent {
		c.closeLocked()
	}
	var below []*Context
	if len(c.below) > 0 {
		below, c.below = c.below, nil
	}
	c.mu.Unlock()
	for _, child := range below { // whose locks are taken before this one's
		child.End(err)
	}
}

// disarmLocked stops the timer, and leaves the parent. One that cannot be stopped any more is about
// to end the context, which therefore must not be another request's.
func (c *Context) disarmLocked() {
	if c.armed && !c.timer.Stop() {
		c.spent = true
	}
	c.armed = false
	if c.adopted && !c.parent.Disown(c) {
		c.spent = true
	}
	c.adopted = false
}

func (c *Context) closeLocked() {
	if !c.closed {
		close(c.done)
		c.closed, c.spent = true, true
	}
}

// Renew returns a context for the next request: c itself when nothing can still listen to it. c has
// ended.
func (c *Context) Renew(limit time.Duration) *Context {
	if c.watched.Load() {
		c.mu.Lock()
		c.disarmLocked()
		used := c.spent || c.lent > 0
		c.mu.Unlock()
		if used {
			return &Context{limit: limit}
		}
		c.watched.Store(false)
	}
	c.limit = limit
	if c.fixed.Load() {
		c.fixed.Store(false)
	}
	c.state.Store(ctxLive)
	return c
}
