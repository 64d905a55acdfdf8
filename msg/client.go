package msg

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/msg/internal/marks"
	"github.com/sluice-storage/sluice/wire"
)

// Dial connects to a server at an address of the node's Domain. The connection is shared by all
// callers of Call.
func (n *Node) Dial(ctx context.Context, addr string) (*Conn, error) {
	return n.DialAt(ctx, Place{Addr: addr}, [32]byte{})
}

// DialAt is Dial by any of the node's providers. token is shown to a listener that asks for one.
func (n *Node) DialAt(ctx context.Context, at Place, token [32]byte) (*Conn, error) {
	r, err := n.rungOf(at.Domain)
	if err != nil {
		return nil, err
	}
	cfg, err := n.config(r, n.opts.Credits)
	if err != nil {
		return nil, err
	}
	cfg.Hello.Token = token
	ep, err := r.domain.Connector().Dial(ctx, at.Addr, cfg)
	if err != nil {
		_ = cfg.RecvCQ.Close()
		return nil, errs.Wrap("msg.Dial", at.Addr, err)
	}
	return newConn(n, r, ep, &cfg)
}

func newConn(n *Node, r *rung, ep fabric.Endpoint, cfg *fabric.EndpointConfig) (*Conn, error) {
	credits := min(n.opts.Credits, int(ep.Peer().RecvDepth)-controlReserve)
	if credits < 1 {
		_ = ep.Close()
		_ = cfg.RecvCQ.Close()
		return nil, errs.Newf(errs.Protocol, "msg", ep.Name(), "the peer offers no credits")
	}
	l, err := newLink(n, r, ep, cfg, credits+controlReserve)
	if err != nil {
		return nil, err
	}
	c := &Conn{link: l, slots: make([]slot, credits)}
	c.credits = gate.New(gate.Options{Name: "credits", Count: credits, Bytes: int64(n.opts.Window),
		Age: n.opts.Age})
	l.aliveBuf = credits + maxCancels
	c.standbyWake = make(chan struct{}, 1)
	for i := range c.slots {
		c.slots[i].index, c.slots[i].id = i, uint64(i)
		c.slots[i].wake, c.slots[i].fenced = make(chan struct{}, 1), make(chan struct{}, 1)
		c.slots[i].eager = -1
		c.free = append(c.free, int32(credits-1-i))
	}
	l.role = c
	l.duty.Open(n.watchdog, c.standby, c.pressing)
	if err := n.adopt(c, l.name); err != nil {
		l.discard()
		return nil, err
	}
	l.start()
	if n.opts.Progress != ProgressThread { // else its goroutine keeps the duty
		c.duty.Leave(false)
	}
	go c.pollOnDemand()
	return c, nil
}

// Call sends a request and waits for its reply. The error is the server's own (an *errs.Error
// of the same kind with the server's text), or errs.Disconnected, errs.TimedOut,
// errs.Canceled, errs.Shutdown, errs.TooBig for a description that no message holds,
// errs.Invalid for memory that makes no sense. After any return the server cannot touch the
// request's memory any more. A call that ended with Disconnected, TimedOut or Canceled may or
// may not have been executed. Where a refused access ends the connection (Caps.RefusalEnds), a call
// that is given up while the server may reach its memory returns up to CancelGrace late.
func (c *Conn) Call(ctx context.Context, req *Request, rep *Reply) error {
	s, err := c.begin(ctx, req)
	if err != nil {
		return errs.Wrap("msg.Call", c.name, err)
	}
	if err := c.submit(ctx, s, req, 0); err != nil {
		return c.unsubmit(s, err)
	}
	return c.outcomeOf(ctx, s, req, rep)
}

// outcomeOf waits for the reply to a request that was sent.
func (c *Conn) outcomeOf(ctx context.Context, s *slot, req *Request, rep *Reply) error {
	err := c.await(ctx, s)
	if err != nil && c.caps.RefusalEnds && len(s.grants) > 0 {
		c.cancelAndWait(s)
	}
	c.revoke(s)
	if err != nil {
		if s.eager >= 0 {
			c.fence(s)
		}
		c.abandon(s, true)
		return errs.Wrap("msg.Call", c.name, err)
	}
	return c.finish(s, req, rep)
}

// Send sends a one-way message: a request without an answer and without an In segment. When it
// returns, control and inline data are posted, in order with other messages of this connection;
// larger data has been taken by the server. The caller does not learn whether the message was
// handled, and it may be lost with the connection; a handler's error counts in Node.Stats. Like a
// request it needs a credit, which comes back when it was handled.
func (c *Conn) Send(ctx context.Context, req *Request) error {
	if req.In != nil {
		return errs.Newf(errs.Invalid, "msg.Send", c.name, "a one-way message has no answer")
	}
	s, err := c.begin(ctx, req)
	if err != nil {
		return errs.Wrap("msg.Send", c.name, err)
	}
	if err := c.submit(ctx, s, req, marks.OneWay); err != nil {
		return c.unsubmit(s, err)
	}
	if s.lends() {
		return c.outcomeOf(ctx, s, req, &s.scratch)
	}
	c.abandon(s, false)
	return nil
}

// begin waits for a credit and takes a slot.
func (c *Conn) begin(ctx context.Context, req *Request) (*slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	window := c.windowOf(req)
	if err := c.credits.Take(ctx, int(c.level(req.Level)), 1, window); err != nil {
		return nil, err
	}
	return c.claim(ctx, req, window)
}

// claim takes a slot for a request that has its credit. If it fails the credit is given back.
func (c *Conn) claim(ctx context.Context, req *Request, window int64) (*slot, error) {
	_, limited := ctx.Deadline()
	if err := c.enter(); err != nil {
		c.credits.Give(1, window)
		return nil, err
	}
	c.mu.Lock()
	if err := c.refusesLocked(); err != nil {
		c.mu.Unlock()
		c.leave()
		c.credits.Give(1, window)
		return nil, err
	}
	last := len(c.free) - 1 // there is one: a slot is freed before its credit comes back
	s := &c.slots[c.free[last]]
	c.free = c.free[:last]
	s.window, s.patient, s.ready = window, req.Patient, req.Ready
	s.id += 1 << 16 // above the slot's index, so that ids of one connection never repeat
	c.setLocked(s, slotWaiting)
	s.outcome, s.deadline = nil, time.Time{}
	s.cancelDue, s.cancelSent, s.timed = false, false, !limited
	c.mu.Unlock()
	return s, nil
}

// submit grants, encodes and posts. When it fails the server has not seen the request.
func (c *Conn) submit(ctx context.Context, s *slot, req *Request, flags uint8) error {
	left := c.node.opts.CallTimeout
	if deadline, limited := ctx.Deadline(); limited {
		left = time.Until(deadline)
	}
	h := wire.Header{
		Kind: wire.KindRequest, Op: req.Op, Stamp: req.Stamp, RequestID: s.id,
		DeadlineMs: deadlineMs(left),
	}
	m := marks.Marks{Flags: flags, Level: uint8(c.level(req.Level))}
	msg, err := c.encode(s, &h, req, m)
	if err != nil {
		return err
	}
	if s.eager >= 0 {
		return c.sendEager(s, req.Out, msg)
	}
	return c.sendPlain(&s.parcel, msg)
}

// deadlineMs is d for a header: at least 1, because 0 means no limit.
func deadlineMs(d time.Duration) uint32 {
	ms := int64((d + time.Millisecond - 1) / time.Millisecond)
	return uint32(min(max(ms, 1), math.MaxUint32))
}

// finish copies the reply out of its receive, reposts the receive and returns slot and credits.
func (c *Conn) finish(s *slot, req *Request, rep *Reply) error {
	err := s.parse(req, rep)
	broken := err != nil && s.header.Status == errs.OK
	credits := int(s.header.Credits)
	window := s.window
	c.repost(s.recv)
	c.release(s)
	c.credits.Give(credits, window)
	c.leave()
	if broken { // a malformed reply, unlike one with an error
		c.fail(err)
	}
	return err
}

// parse reads a reply. Its body on the wire is
//
//	0          8
//	|in length |body, or the error's text |
func (s *slot) parse(req *Request, rep *Reply) error {
	d := wire.NewDec(s.body)
	rep.InLen, rep.Map = d.Size(), s.header.Map
	rep.Status = ""
	rep.Body = append(rep.Body[:0], d.Rest()...)
	if err := d.Err(); err != nil {
		return err
	}
	if s.header.Status != errs.OK {
		rep.Status = string(rep.Body)
		rep.Body = rep.Body[:0]
		return &errs.Error{Op: "msg.Call", Kind: s.header.Status, Err: errors.New(rep.Status)}
	}
	if rep.InLen > req.In.Len() || int64(len(s.inline)) > rep.InLen {
		return errs.Newf(errs.Protocol, "msg.Call", "", "reply with %d bytes of data (%d inline), "+
			"room for %d", rep.InLen, len(s.inline), req.In.Len())
	}
	if len(s.inline) > 0 {
		req.In.CopyFrom(&s.spaces[1], s.inline)
	}
	return nil
}

// unsubmit undoes begin for a request that was not sent, and returns why.
func (c *Conn) unsubmit(s *slot, err error) error {
	c.revoke(s)
	window := s.window
	c.release(s)
	c.credits.Give(1, window)
	c.leave()
	return errs.Wrap("msg.Call", c.name, c.explain(err))
}
