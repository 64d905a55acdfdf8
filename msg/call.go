package msg

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// replyBytes is what stands before a reply's body: the header and the length of the data, see
// slot.parse.
const replyBytes = wire.HeaderBytes + 8

// maxText is how much of an error's text crosses the wire.
const maxText = minBody - 8

// Handler serves requests. Serve is called on a goroutine of its own, for at most as many
// calls of one connection at once as there are credits. It must end the call with exactly one
// Reply or Fail. c must not be used afterwards. A panic in Serve fails the call and closes
// the connection, no more.
type Handler interface {
	Serve(ctx context.Context, c *Call)
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, c *Call)

// Serve calls f.
func (f HandlerFunc) Serve(ctx context.Context, c *Call) { f(ctx, c) }

// Call is a request at the server. Pull and Push are safe for concurrent use; Reply or Fail
// ends the call, after all of them have returned.
type Call struct {
	s       *serverConn
	index   int
	ctx     *wait.Context
	ended   atomic.Bool
	pushed  atomic.Bool  // writes were posted: the reply waits for them
	holds   atomic.Int32 // the handler, and a reply whose send buffer is still in use
	replied *wait.Count
	parcel  parcel

	// Set by begin, and not changed while the call is active. active and gen are guarded by
	// serverConn.mu.
	active  bool
	gen     uint32
	marks   marks
	handler Handler
	level   int
	ticket  gate.Ticket // of the server's admission
	recv    int
	header  wire.Header
	body    []byte
	inline  []byte
	eager   []byte // request data in an eager slot, which the client can still write
	slotRef bool   // the slot is kept for the call; guarded by serverConn.mu
	bad     error  // why the header's marks were refused
	out, in segment.Description

	mu        sync.Mutex // also held while writes are posted: it keeps a call's chains in order
	high      int64      // inline reply data: the bytes before it are set
	lent      int        // places held by writes posted since the last signalled one
	lentBytes int64      // that they carry
	failure   failure

	unit int // the largest part of a transfer
}

// beginLocked fills a call with a request. The serverConn's lock is held.
func (c *Call) beginLocked(a *arrival) {
	c.ctx = c.ctx.Renew(time.Duration(a.header.DeadlineMs) * time.Millisecond)
	if !a.waited.IsZero() {
		c.ctx.Fix(a.waited)
	}
	c.gen++
	c.active = true
	c.ended.Store(false)
	c.holds.Store(1)
	if a.canceled {
		c.ctx.End(context.Canceled)
	}
	c.recv, c.header, c.body, c.inline = a.recv, a.header, a.body, a.inline
	c.marks, c.bad = parseMarks(a.header.Pieces)
	c.unit = c.s.rung.limits.Unit
	c.high, c.lent, c.lentBytes = 0, 0, 0
	if c.pushed.Load() {
		c.pushed.Store(false)
	}
}

// place gives a call its level and its handler.
func (c *Call) place() {
	srv := c.s.srv
	level := Level(c.marks.level)
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
	body, err := segment.Decode(c.body, uint32(c.marks.segments), int64(len(c.inline)), room,
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

// near is request data that is here already; nil where it has to be fetched.
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

// PeerIdentity is who the client says it is.
func (c *Call) PeerIdentity() uint64 { return c.s.ep.Peer().Identity }

// OneWay tells whether nobody waits for the answer. Its body is dropped.
func (c *Call) OneWay() bool { return c.marks.flags&markOneWay != 0 }

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
		invariant.Check(false, "msg.Call.%s after the call was answered", op)
	}
}

// Reply ends the call: body goes to the client behind all data that was pushed, and inLen
// tells how many bytes of the In segment are filled. It returns when the memory that was
// pushed is free; when nothing was pushed it does not wait. An error means that the client
// may not have got the answer. The call is over in any case, and body is the caller's again.
func (c *Call) Reply(body []byte, inLen int64) error {
	c.live("Reply")
	if len(body) > c.MaxReply() {
		return c.answer(errs.TooBig, []byte("the reply's body is larger than a message"), 0)
	}
	if inLen < 0 || inLen > c.in.Length {
		return c.answer(errs.OutOfRange, []byte("the reply claims more data than there is room"), 0)
	}
	return c.answer(errs.OK, body, inLen)
}

// Fail ends the call with an error: its kind and text reach the client. nil is replied as
// errs.IO, because an unknown failure must not look like success. Like Reply it waits for
// pushed memory.
func (c *Call) Fail(err error) error {
	c.live("Fail")
	kind, text := errs.IO, "failed for no stated reason"
	if err != nil {
		kind, text = errs.KindOf(err), err.Error()
	}
	c.s.srv.counts.failed.Add(1)
	return c.answer(kind, []byte(text[:min(len(text), maxText)]), 0)
}

// answer posts the receive again, then the reply with the credit for it.
func (c *Call) answer(status errs.Kind, body []byte, inLen int64) error {
	first := c.ended.CompareAndSwap(false, true)
	invariant.Check(first, "msg.Call answered twice")
	if c.OneWay() {
		body = nil
	}
	c.compose(status, body, inLen)
	c.deactivate()
	c.s.repost(c.recv)
	return c.send()
}

// deactivate hides the call from cancellation: it is answered. A client that has the answer may
// give the request's eager slot back, so that is let go before.
func (c *Call) deactivate() {
	c.s.mu.Lock()
	c.active = false
	c.s.unuseSlotLocked(c)
	c.s.mu.Unlock()
}

// compose writes the reply: header and body at the front of the send buffer, inline data at
// its end, where Push has put it.
func (c *Call) compose(status errs.Kind, body []byte, inLen int64) {
	h := wire.Header{
		Kind: wire.KindReply, Op: c.header.Op, Status: status, RequestID: c.header.RequestID,
		Credits: 1, BodyLen: uint32(8 + len(body)),
	}
	buf := c.s.sendBuf(c.index)
	var data []byte
	if c.in.Inline && inLen > 0 {
		data = c.inlineRoom()[:inLen]
		if c.high < inLen {
			clear(data[c.high:])
		}
		h.InlineLen = uint32(inLen)
	}
	e := wire.Enc{B: h.Append(buf[:0])}
	e.I64(inLen)
	e.Raw(body)
	reg := c.s.arena.Region()
	c.parcel.pieces = [2]fabric.Sge{{Reg: reg, Buf: e.B}, {Reg: reg, Buf: data}}
}

// inlineRoom is where the In segment's data lies when it rides in the reply.
func (c *Call) inlineRoom() []byte {
	buf := c.s.sendBuf(c.index)
	return buf[len(buf)-int(c.in.Length):]
}

// collect copies pushed data into the reply. Bytes that nobody pushes are zero, not what an
// earlier reply left behind.
func (c *Call) collect(off int64, src []fabric.Sge) {
	c.mu.Lock()
	defer c.mu.Unlock()
	room := c.inlineRoom()
	if off > c.high {
		clear(room[c.high:off])
	}
	for i := range src {
		off += int64(mem.Copy(room[off:], src[i].Buf))
	}
	c.high = max(c.high, off)
}

// send posts the reply and waits for what was pushed before it. A reply that Post cannot copy is
// signalled too, because the send buffer is in use until it has left; nobody waits for that.
func (c *Call) send() error {
	pushed := c.pushed.Load()
	if !pushed && c.parcel.bytes() <= c.s.inlineMax {
		err := c.s.send(&c.parcel, fabric.FlagInline, kindPlain)
		if err != nil {
			c.s.fail(err) // a client that gets no reply must not wait for it
		}
		return err
	}
	c.mu.Lock()
	places := c.lent
	c.mu.Unlock()
	o := op{left: 1, places: places, call: c, gen: c.gen, write: true, reply: true}
	if pushed {
		c.replied.Add(1)
		o.wait = c.replied
	}
	c.holds.Add(1)
	context := c.s.startOp(o)
	if err := c.s.send(&c.parcel, fabric.FlagSignaled, context); err != nil {
		if c.s.dropOp(context) {
			c.s.places.Give(0, int64(places))
			c.unhold()
			if pushed {
				c.replied.Done(1, nil)
			}
		}
		c.s.fail(err)
		if pushed {
			c.s.closeEndpoint() // writes posted before may still read the caller's memory
		}
		return err
	}
	if !pushed {
		return nil
	}
	if err := c.s.settle(c.replied); err != nil {
		return errs.Wrap("msg.Reply", c.s.name, c.s.explain(err))
	}
	return errs.Wrap("msg.Reply", c.s.name, c.failed())
}

// failure is the first write of a request that failed. One that is told late, by another goroutine
// that polls, may find the call serving another request, to which it means nothing.
type failure struct {
	gen uint32 // of the call
	err error
}

func (c *Call) writeFailed(gen uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.failure
	if later := int32(gen - f.gen); later > 0 || later == 0 && f.err == nil {
		*f = failure{gen, err}
	}
}

// failed is the first failure of a write of this request.
func (c *Call) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure.gen != c.gen {
		return nil
	}
	return c.failure.err
}

// unhold drops one of the reasons to keep the call's memory; without any it serves another
// request.
func (c *Call) unhold() {
	if c.holds.Add(-1) == 0 {
		c.s.recycle(c)
	}
}
