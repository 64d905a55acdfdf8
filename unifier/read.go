package unifier

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier/internal/index"
)

// joinsMax is how many failures of others a loan takes note of before it fails with the last.
const joinsMax = 8

// Read lends the bytes of an access. What is missing is read from the backing: adjacent units in
// one read, and a unit that somebody else is fetching is waited for, not read twice. What was
// never written reads as zeroes. It waits while too much is lent; an access that touches more
// units than can be lent at once (see ReadShare) is refused with errs.TooBig.
func (c *Cache) Read(ctx context.Context, id Key, a seg.Access, h Hint) (*Loan, error) {
	const op = "unifier.Read"
	if err := index.CheckAccess(op, id, a, h); err != nil {
		return nil, err
	}
	x := c.index
	x.Lock()
	l, err := x.Lend(ctx, id, a, h)
	ahead := x.NewAhead()
	x.Unlock()
	c.workers.readSoon(ahead)
	if err != nil {
		return nil, errs.Wrap(op, id.String(), err)
	}
	if err := c.complete(ctx, l); err != nil {
		l.Release()
		return nil, errs.Wrap(op, id.String(), err)
	}
	x.Cover(l)
	return l, nil
}

// Lend is Read of what the cache holds already, found in one step: nil, and nothing has happened,
// when something is missing or still being read, or when readers have to wait for memory.
func (c *Cache) Lend(id Key, a seg.Access, h Hint) *Loan {
	if index.CheckAccess("unifier.Lend", id, a, h) != nil {
		return nil // Read will say why
	}
	x := c.index
	x.Lock()
	l := x.LendCached(id, a, h)
	ahead := x.NewAhead()
	x.Unlock()
	c.workers.readSoon(ahead)
	if l != nil {
		x.Cover(l)
	}
	return l
}

// complete returns when all units of the loan hold their bytes. When another reader, whose fill
// this one has waited for, has failed, be it on a place that this loan does not need, it tries for
// itself.
func (c *Cache) complete(ctx context.Context, l *Loan) error {
	x := c.index
	for failures := 0; ; {
		others, err := c.await(ctx, l)
		if err != nil || others == nil {
			return err
		}
		if failures++; failures == joinsMax {
			return others
		}
		x.Lock()
		err = x.LendAgain(ctx, l)
		x.Unlock()
		if err != nil {
			return err
		}
	}
}

// await runs the loan's own fill and waits for those of others. others is how one of them failed.
func (c *Cache) await(ctx context.Context, l *Loan) (others, err error) {
	own, joined := c.index.Fills(l)
	if own != nil {
		if err := c.fill(ctx, own); err != nil {
			return nil, err
		}
	}
	for _, f := range joined {
		c.index.Lock()
		err := c.index.WaitFill(ctx, f, l)
		c.index.Unlock()
		if err != nil {
			return nil, err
		}
		if f.Err() != nil {
			return f.Err(), nil
		}
	}
	return nil, nil
}

// fill reads missing units and tells everybody who waits for them.
func (c *Cache) fill(ctx context.Context, f *index.Fill) error {
	x, o := c.index, f.Object()
	f.Prepare()
	x.Lock()
	err := x.LockRange(ctx, o, &f.Lock)
	x.Unlock()
	locked := err == nil
	if locked {
		c.back.SettleSpans(o.ID(), f.Lock.Spans)
		err = c.fetch(ctx, f)
	}
	x.Lock()
	if locked {
		x.UnlockRange(o, &f.Lock)
	}
	x.FinishFill(f, err)
	x.Unlock()
	return errs.Wrap("unifier.fill", "", err)
}

// aheadFill is how many bytes one read of the backing brings ahead of a stream.
const aheadFill = 1 << 20

// readAhead brings what is missing of the next range that the index wants, on a worker.
func (c *Cache) readAhead() {
	x := c.index
	x.Lock()
	a, ok := x.NextAhead()
	x.Unlock()
	if !ok {
		return
	}
	if c.stater != nil { // behind the end there is nothing
		info, err := c.stater.Stat(c.workers.life, a.ID)
		if err != nil {
			return
		}
		a.To = min(a.To, info.Size)
	}
	x.Lock()
	o := x.Open(a.ID, Hint{})
	for a.From < a.To {
		part := a
		part.To = min(a.To, a.From+aheadFill)
		a.From = part.To
		if f := x.FillAhead(o, part); f != nil {
			x.Unlock()
			_ = c.fill(c.workers.life, f) // whoever needs the bytes will be told
			x.Lock()
			x.EndAhead(f)
		}
	}
	x.Close(o)
	x.Unlock()
}
