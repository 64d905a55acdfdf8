package msg

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg/segment"
)

// UnitFunc is given a part of a segment: bytes of its stream from off on. It may use b until it
// returns.
type UnitFunc func(off int64, b []byte) error

// unit is one of a call's two staging buffers and the transfer that uses it. mem.Zones may give
// several smaller buffers in place of one.
type unit struct {
	bufs []*mem.Buf
	sges []fabric.Sge // the part in use
	off  int64
	wait waiter
	busy bool // a transfer was started and not waited for
}

// PullUnits fetches n bytes of request data from off on and shows them to fn in order, in units of
// the message layer's own memory: while fn looks at one unit the next one is on its way. It is for
// handlers that have no memory of their own for the data. What fn sees cannot be changed by the
// client any more.
func (c *Call) PullUnits(ctx context.Context, off, n int64, fn UnitFunc) error {
	c.live("PullUnits")
	if off < 0 || n < 0 || n > c.out.Length-off {
		return outside("msg.PullUnits", off, n, c.out.Length)
	}
	return c.withUnits(ctx, n, func(units []*unit, size int64) error {
		next := off
		fill := func(u *unit) error {
			if next == off+n {
				return nil
			}
			u.aim(c.s.rung.domain, next, min(size, off+n-next))
			next += segment.Total(u.sges)
			return c.startPull(ctx, u)
		}
		for _, u := range units {
			if err := fill(u); err != nil {
				return err
			}
		}
		for i := 0; ; i++ {
			u := units[i%len(units)]
			if !u.busy {
				return nil
			}
			err := c.finishUnit(ctx, u)
			if err == nil {
				err = u.show(fn)
			}
			if err == nil {
				err = fill(u)
			}
			if err != nil {
				return err
			}
		}
	})
}

// PushUnits delivers n bytes of reply data from off on, which fn makes, unit by unit, in memory of
// the message layer: while one unit is on its way fn fills the other one. It returns when all of
// them have left.
func (c *Call) PushUnits(ctx context.Context, off, n int64, fn UnitFunc) error {
	c.live("PushUnits")
	if off < 0 || n < 0 || n > c.in.Length-off {
		return outside("msg.PushUnits", off, n, c.in.Length)
	}
	return c.withUnits(ctx, n, func(units []*unit, size int64) error {
		for i, next := 0, off; next < off+n; i++ {
			u := units[i%len(units)]
			if u.busy {
				if err := c.finishUnit(ctx, u); err != nil {
					return err
				}
			}
			u.aim(c.s.rung.domain, next, min(size, off+n-next))
			if err := u.show(fn); err != nil {
				return err
			}
			if err := c.startPush(ctx, u); err != nil {
				return err
			}
			next += segment.Total(u.sges)
		}
		for _, u := range units {
			if err := c.finishUnit(ctx, u); err != nil {
				return err
			}
		}
		return nil
	})
}

// withUnits takes the memory for n bytes, two units at most, in one step, and returns it when no
// transfer uses it any more.
func (c *Call) withUnits(ctx context.Context, n int64, fn func([]*unit, int64) error) error {
	if n == 0 {
		return nil
	}
	user, err := c.s.unitUser()
	if err != nil {
		return err
	}
	size := int64(c.s.node.store.unitBytes(c.s.rung.limits.Unit))
	sizes := []int{int(min(n, size))}
	if n > size {
		sizes = append(sizes, int(min(n-size, size)))
	}
	bufs, err := user.TakeList(ctx, sizes, nil)
	if err != nil {
		return errs.Wrap("msg.Units", c.s.name, err)
	}
	units := make([]*unit, len(sizes))
	for i, want := range sizes {
		units[i] = &unit{wait: waiter{zero: make(chan struct{}, 1)}}
		for got := 0; got < want; {
			got += bufs[0].Len()
			units[i].bufs, bufs = append(units[i].bufs, bufs[0]), bufs[1:]
		}
	}
	err = fn(units, size)
	for _, u := range units {
		_ = c.s.settle(&u.wait)
		for _, b := range u.bufs {
			b.Return()
		}
	}
	return err
}

// aim makes a unit stand for n bytes of the stream, and less where its memory is smaller.
func (u *unit) aim(d fabric.Domain, off, n int64) {
	u.off, u.sges = off, u.sges[:0]
	for _, b := range u.bufs {
		part := int(min(n, int64(b.Len())))
		if part == 0 {
			return
		}
		u.sges = append(u.sges, b.SgeOf(d, 0, part))
		n -= int64(part)
	}
}

// show hands the unit's memory to the caller's function.
func (u *unit) show(fn UnitFunc) error {
	off := u.off
	for i := range u.sges {
		if err := fn(off, u.sges[i].Buf); err != nil {
			return err
		}
		off += int64(len(u.sges[i].Buf))
	}
	return nil
}

func (c *Call) startPull(ctx context.Context, u *unit) error {
	u.busy = true
	c.s.srv.counts.pulled.Add(uint64(segment.Total(u.sges)))
	if from := c.near(); from != nil {
		for i, at := 0, u.off; i < len(u.sges); i++ {
			at += int64(mem.Copy(u.sges[i].Buf, from[at:]))
		}
		return nil
	}
	return c.transfer(ctx, fabric.OpRead, &c.out, u.off, u.sges, &u.wait)
}

func (c *Call) startPush(ctx context.Context, u *unit) error {
	u.busy = true
	c.s.srv.counts.pushed.Add(uint64(segment.Total(u.sges)))
	if c.in.Inline {
		c.collect(u.off, u.sges)
		return nil
	}
	return c.transfer(ctx, fabric.OpWrite, &c.in, u.off, u.sges, &u.wait)
}

// finishUnit waits for the transfer of a unit.
func (c *Call) finishUnit(ctx context.Context, u *unit) error {
	if !u.busy {
		return nil
	}
	u.busy = false
	err := c.s.settle(&u.wait)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // the client revokes what it cancels: say so rather than errs.Perm
	}
	return errs.Wrap("msg.Units", c.s.name, c.s.explain(err))
}

// unitUser is the connection's share of the node's memory.
func (s *serverConn) unitUser() (*mem.User, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.eager.user == nil {
		if s.node.opts.Memory == 0 {
			return nil, errs.Newf(errs.NoMemory, "msg.Units", s.name, "Options.Memory is none")
		}
		u, err := s.node.store.open(s.name)
		if err != nil {
			return nil, err
		}
		s.eager.user = u
	}
	return s.eager.user, nil
}
