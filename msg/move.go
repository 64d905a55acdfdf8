package msg

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg/segment"
)

// Pull fetches the request's data from off on into dst, filling it completely. It returns
// when the data is in place, or with an error when no operation touches dst any more. When
// ctx ends no further operation is started.
func (c *Call) Pull(ctx context.Context, off int64, dst []fabric.Sge) error {
	c.live("msg.Pull")
	n := segment.Total(dst)
	if off < 0 || n > c.out.Length-off {
		return outside("msg.Pull", off, n, c.out.Length)
	}
	c.s.carried.pulled.Add(uint64(n))
	if from := c.near(); from != nil {
		from = from[off:]
		for i := range dst {
			from = from[mem.Copy(dst[i].Buf, from):]
		}
		return nil
	}
	return errs.Wrap("msg.Pull", c.s.name, c.transferWait(ctx, fabric.OpRead, &c.out, off, dst))
}

// Push delivers src as the reply's data at off. Small In segments are copied into the reply
// at once; larger ones are written into the client's memory, and src belongs to the call
// until Reply or Fail returns, also when Push fails.
func (c *Call) Push(ctx context.Context, off int64, src []fabric.Sge) error {
	done, err := c.pushNear("msg.Push", off, src)
	if done || err != nil {
		return err
	}
	err = c.failed() // an earlier one: there is no sense in going on
	if err == nil {
		err = c.transfer(ctx, fabric.OpWrite, &c.in, off, src, nil)
	}
	return errs.Wrap("msg.Push", c.s.name, c.s.explain(err))
}

// PushWait is Push that returns when src is the caller's again: for handlers that deliver a long
// answer through a little memory, chunk by chunk, in any order and from several goroutines.
func (c *Call) PushWait(ctx context.Context, off int64, src []fabric.Sge) error {
	done, err := c.pushNear("msg.PushWait", off, src)
	if done || err != nil {
		return err
	}
	return errs.Wrap("msg.PushWait", c.s.name,
		c.transferWait(ctx, fabric.OpWrite, &c.in, off, src))
}

// pushNear counts what is pushed. Where it rides in the reply it copies it there, and done is true.
func (c *Call) pushNear(op string, off int64, src []fabric.Sge) (done bool, err error) {
	c.live(op)
	n := segment.Total(src)
	if off < 0 || n > c.in.Length-off {
		return false, outside(op, off, n, c.in.Length)
	}
	c.s.carried.pushed.Add(uint64(n))
	if c.in.Inline {
		c.collect(off, src)
	}
	return c.in.Inline, nil
}

// transferWait is transfer that returns when no operation touches the local memory any more.
func (c *Call) transferWait(ctx context.Context, op fabric.Op, s *segment.Description, off int64,
	local []fabric.Sge,
) error {
	w := c.s.node.waiters.Get().(*wait.Count)
	err := c.transfer(ctx, op, s, off, local, w)
	if failed := c.s.awaitOps(w); err == nil {
		err = failed
	}
	c.s.node.waiters.Put(w)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // the client revokes what it cancels: say so rather than errs.Perm
	}
	return c.s.explain(err)
}

func outside(op string, off, n, length int64) error {
	return errs.Newf(errs.OutOfRange, op, "", "%d bytes at %d of %d", n, off, length)
}

// transfer posts one-sided operations between local memory and the segment's stream from off on, as
// the send queue has places for them. Reads are counted in w; writes too, if there is one. How many
// bytes are under way is bounded by the handlers' memory.
func (c *Call) transfer(ctx context.Context, op fabric.Op, s *segment.Description, off int64,
	local []fabric.Sge, w *wait.Count,
) error {
	ch := c.s.node.chains.Get().(*segment.Chain)
	defer func() {
		ch.Reset()
		c.s.node.chains.Put(ch)
	}()
	remote, rest := s.Walk(off), segment.Pieces{List: local}
	for {
		ch.Fill(op, &c.s.caps, int64(c.unit), s, &remote, &rest)
		if len(ch.WRs) == 0 {
			return nil
		}
		if err := c.s.localize(ch.WRs); err != nil {
			return err
		}
		if err := c.reserve(ctx, len(ch.WRs)); err != nil {
			return err
		}
		var err error
		if op == fabric.OpWrite {
			err = c.postWrites(ch, w)
		} else {
			err = c.postReads(ch, w)
		}
		if err != nil {
			return err
		}
	}
}

// reserve waits for places in the send queue. They become free: completions are due for more than
// half of them, see postWrites.
func (c *Call) reserve(ctx context.Context, places int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.s.places.Free() < int64(places) {
		c.s.duty.EnsurePolling()
	}
	return c.s.places.Take(ctx, c.level, 0, int64(places))
}

// postReads signals each Read: they complete in any order.
func (c *Call) postReads(ch *segment.Chain, w *wait.Count) error {
	n := len(ch.WRs)
	w.Add(n)
	context := c.s.startOp(op{left: n, places: n, wait: w, call: c})
	for i := range ch.WRs {
		ch.WRs[i].Flags, ch.WRs[i].Context = fabric.FlagSignaled, context
	}
	err := c.s.post(ch.WRs)
	if err != nil && c.s.dropOp(context) {
		w.Done(n, nil)
		c.s.places.Give(0, int64(n))
	}
	return err
}

// postWrites leaves writes unsignalled as long as places are plenty: the reply's completion frees
// them. Less than half of the places can be held that way, so waiters get some. Each unit is
// signalled, so that a peer that takes a large transfer slowly is seen to be alive.
func (c *Call) postWrites(ch *segment.Chain, w *wait.Count) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(ch.WRs)
	for i := range ch.WRs {
		ch.WRs[i].Context = kindWrite | uint64(c.gen)<<16 | uint64(c.index)
		ch.WRs[i].Flags = fabric.FlagEarly // the reply follows
		if w == nil {
			ch.WRs[i].Flags |= fabric.FlagLater
		}
	}
	held, bytes := c.lent+n, c.lentBytes+ch.Bytes
	signal := w != nil || bytes >= int64(c.unit) || c.s.places.Free() < bulkDepth/2
	var context uint64
	if signal {
		if w != nil {
			w.Add(1)
		}
		o := op{left: 1, places: held, wait: w, call: c, gen: c.gen, write: true}
		context = c.s.startOp(o)
		ch.WRs[n-1].Flags |= fabric.FlagSignaled
		ch.WRs[n-1].Context = context
		held, bytes = 0, 0
	}
	if err := c.s.post(ch.WRs); err != nil {
		if !signal || c.s.dropOp(context) {
			c.s.places.Give(0, int64(n))
			if signal && w != nil {
				w.Done(1, nil)
			}
		} else {
			c.lent, c.lentBytes = 0, 0 // returned at the end of the link
		}
		return err
	}
	c.lent, c.lentBytes = held, bytes
	c.pushed.Store(true)
	return nil
}
