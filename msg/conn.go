package msg

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/msg/internal/eager"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// This file is the state of a client's connection; client.go is the life of a request on it.

// Conn is the client's end of a connection. Safe for concurrent use.
//
// Life of a request: take a credit, which stands for a slot and for a part of the window, so that
// one wait covers all three; grant the windows of data that is too large to ride inline; write the
// message into the slot's send buffer and post it; wait. The reply's receive was posted before the
// request left. The caller copies out what rode inline, posts the receive again, revokes the grants
// and returns the credit.
type Conn struct {
	*link
	credits *gate.Gate // requests, and bytes of the window

	standbyWake chan struct{} // room for one: wakes the connection's goroutine, to poll
	waiting     atomic.Int32  // slots that wait and are not patient; changed with Conn.mu only
	patient     atomic.Int32  // slots that wait and are
	self        *slot         // whose caller polls; belongs to the holder of the duty
	hit         bool          // likewise: its answer is here

	mu       sync.Mutex
	held     eager.Held // slots at the server
	slots    []slot
	free     []int32 // indices of slots without a request
	cancels  int     // cancellations that the server has not acknowledged
	next     int     // control buffer of the next cancellation
	draining bool    // the server said goodbye
}

// slot carries one request at a time. The fields above state belong to the caller while it is in
// Call; the rest is guarded by Conn.mu.
type slot struct {
	index   int
	grants  []grant
	spaces  [2]segment.Space // of Out and In
	remotes []fabric.Remote
	parcel  parcel
	scratch Reply         // of one-way messages
	window  int64         // bytes of the connection's window that the request has
	eager   int           // eager slot of the request's data; -1 for none. Set with Conn.mu
	fenced  chan struct{} // room for one: what was posted before is done
	wake    chan struct{} // room for one: reply, death or time limit

	state      slotState
	patient    bool   // its caller never polls
	ready      func() // Request.Ready of one that waits
	cancelDue  bool   // a cancellation is to be sent
	cancelSent bool   // a cancellation was sent
	id         uint64
	timed      bool      // the sweep ends it, because the caller's context has no deadline
	deadline   time.Time // set by the sweep when it first finds the request waiting
	outcome    error     // why there will be no reply
	recv       int       // receive that holds the reply
	header     wire.Header
	body       []byte
	inline     []byte
}

type slotState uint8

const (
	slotFree slotState = iota
	slotWaiting
	slotAnswered
	slotAbandoned // the caller left; the reply will free the slot
)

// grant is a right that the server holds until the call is over.
type grant struct {
	region fabric.Region
	remote fabric.Remote
	own    bool // the region was registered for this call and ends with it
}

// Provider is the name of the provider that carries the connection.
func (c *Conn) Provider() string { return c.caps.Provider }

// Domain is the provider that carries the connection.
func (c *Conn) Domain() fabric.Domain { return c.rung.domain }

// Peer is the hello of the server.
func (c *Conn) Peer() fabric.Peer { return c.ep.Peer() }

// Done is closed when the connection is dead, by either side.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection is dead, or errs.Shutdown when the server has said that it is
// about to end it; nil while it can be used.
func (c *Conn) Err() error {
	if err := c.err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return errs.New(errs.Shutdown, "msg", c.name, nil)
	}
	return nil
}

// Credits tells how the connection's gate is used: requests, and bytes of the window.
func (c *Conn) Credits() gate.Usage { return c.credits.Usage() }

// MaxDescription is how many bytes a request's body and the descriptions of its segments may
// take together (see DescriptionBytes). Call answers errs.TooBig to more: split the request.
func (c *Conn) MaxDescription() int { return c.msgBytes - wire.HeaderBytes }

// InlineRoom is how much request data can ride inline beside a small body.
func (c *Conn) InlineRoom() int {
	return min(c.rung.limits.InlineMax, c.MaxDescription()-segment.FixedBytes-minBody)
}

// Caps are those of the connection's provider. They do not change.
func (c *Conn) Caps() *fabric.Caps { return &c.caps }

// SameHost tells whether the server is a process of this host, and data moves by copying memory.
func (c *Conn) SameHost() bool { return c.caps.SameHost }

// level is the primary queue of a level.
func (c *Conn) level(l Level) Level { return min(l, Level(c.node.opts.Queues-1)) }

// windowOf is what a request takes of the window: its data that does not ride inline.
func (c *Conn) windowOf(req *Request) (bytes int64) {
	inline := int64(c.rung.limits.InlineMax)
	if n := req.In.Len(); n > inline {
		bytes += n
	}
	if n := req.Out.Len(); n > inline {
		bytes += n
	}
	return min(bytes, int64(c.node.opts.Window))
}

// refusesLocked returns why no request may begin. A connection that died after the caller entered
// may have woken its waiters already: nobody would wake this one.
func (c *Conn) refusesLocked() error {
	switch {
	case c.over.Load():
		return c.err()
	case c.draining:
		return errs.New(errs.Shutdown, "msg", c.name, nil)
	}
	return nil
}

// setLocked changes a slot's state and counts those that wait and would poll.
func (c *Conn) setLocked(s *slot, to slotState) {
	count := &c.waiting
	if s.patient {
		count = &c.patient
	}
	if s.state == slotWaiting {
		count.Add(-1)
	}
	if to == slotFree || to == slotAbandoned {
		s.ready = nil
	}
	if to == slotWaiting && count.Add(1) == 1 && s.patient {
		c.node.watchdog.Hurry()
	}
	s.state = to
}

// release makes a slot free for the next request.
func (c *Conn) release(s *slot) {
	c.mu.Lock()
	c.setLocked(s, slotFree)
	if s.eager >= 0 { // its request was answered
		c.held.Free(s.eager)
		s.eager = -1
	}
	c.free = append(c.free, int32(s.index))
	c.mu.Unlock()
}

// outcome tells whether the wait for a slot is over.
func (c *Conn) outcome(s *slot) (over bool, err error) {
	c.mu.Lock()
	over, err = s.outcome != nil || s.state == slotAnswered, s.outcome
	c.mu.Unlock()
	return over, err
}

// lends tells whether the slot's request still uses the caller's memory.
func (s *slot) lends() bool { return len(s.grants) > 0 || s.eager >= 0 }

// over wakes the caller, whose wait is over.
func (s *slot) over() {
	s.signal()
	if s.ready != nil {
		s.ready()
	}
}

// signal wakes the caller. One signal in the channel is as good as two, and one that comes
// too late wakes the slot's next caller for nothing: see await.
func (s *slot) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
