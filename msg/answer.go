package msg

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/wire"
)

// Reply ends the call: body goes to the client behind all data that was pushed, and inLen
// tells how many bytes of the In segment are filled. It returns when the memory that was
// pushed is free; when nothing was pushed it does not wait. An error means that the client
// may not have got the answer. The call is over in any case, and body is the caller's again.
func (c *Call) Reply(body []byte, inLen int64) error {
	c.live("msg.Reply")
	if len(body) > c.MaxReply() {
		return c.answer(errs.TooBig, []byte("the reply's body is larger than a message"), 0)
	}
	if inLen < 0 || inLen > c.in.Length {
		return c.answer(errs.OutOfRange, []byte("the reply claims more data than there is room"), 0)
	}
	return c.answer(errs.OK, body, inLen)
}

// ReplyLater is Reply that does not wait: freed is called, once, when the memory that was pushed is
// free, by whoever finds that out, before ReplyLater returns or after. It must not block. The
// server's Close waits for it.
func (c *Call) ReplyLater(body []byte, inLen int64, freed func()) {
	c.freed = freed
	c.s.srv.here.Add(1) // for freed
	_ = c.Reply(body, inLen)
}

// free is called when what was pushed before a reply is free.
func (c *Call) free() {
	freed := c.freed
	c.freed = nil
	freed()
	c.s.srv.left()
}

// Fail ends the call with an error: its kind and text reach the client. nil is replied as
// errs.IO, because an unknown failure must not look like success. Like Reply it waits for
// pushed memory.
func (c *Call) Fail(err error) error {
	c.live("msg.Fail")
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
// give the request's eager slot back, so the call's use of it ends before.
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
		Credits: 1, BodyLen: uint32(8 + len(body)), Map: c.mapVersion,
	}
	buf := c.s.bufs.Send(c.index)
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
	reg := c.s.bufs.Region()
	c.parcel.pieces = [2]fabric.Sge{{Reg: reg, Buf: e.B}, {Reg: reg, Buf: data}}
}

// inlineRoom is where the In segment's data lies when it rides in the reply.
func (c *Call) inlineRoom() []byte {
	buf := c.s.bufs.Send(c.index)
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

// send posts the reply and waits for what was pushed before it. A reply that Post does not copy is
// signalled too, because the send buffer is in use until it has left; send does not wait for that.
func (c *Call) send() error {
	pushed := c.pushed.Load()
	if !pushed && c.parcel.bytes() <= c.s.inlineMax {
		err := c.s.send(&c.parcel, fabric.FlagInline|c.round.flags(), kindPlain)
		if err != nil {
			c.s.fail(err) // a client that gets no reply must not wait for it
		}
		if c.freed != nil {
			c.free()
		}
		return err
	}
	c.mu.Lock()
	places := c.lent
	c.mu.Unlock()
	o := op{left: 1, places: places, call: c, gen: c.gen, write: true, reply: true}
	later := c.freed != nil
	if pushed && later {
		o.frees = true
	} else if pushed {
		c.replied.Add(1)
		o.wait = c.replied
	}
	c.refs.Add(1)
	context := c.s.startOp(o)
	flags := fabric.FlagSignaled
	switch {
	case !pushed:
		flags |= c.round.flags()
	case later:
		flags |= fabric.FlagLater
	}
	if err := c.s.send(&c.parcel, flags, context); err != nil {
		dropped := c.s.dropOp(context)
		if dropped {
			c.s.places.Give(0, int64(places))
			if pushed && !later {
				c.replied.Done(1, nil)
			}
		}
		c.s.fail(err)
		if pushed {
			c.s.closeEndpoint() // writes posted before may still read the caller's memory
		}
		if later && (dropped || !pushed) { // else the end of the op has done it
			c.free()
		}
		if dropped {
			c.unref()
		}
		return err
	}
	switch {
	case later && pushed:
		c.s.reapOps()
		return nil
	case later:
		c.free()
		return nil
	case !pushed:
		return nil
	}
	if err := c.s.awaitOps(c.replied); err != nil {
		return errs.Wrap("msg.Reply", c.s.name, c.s.explain(err))
	}
	return errs.Wrap("msg.Reply", c.s.name, c.failed())
}
