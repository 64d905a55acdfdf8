package unifier

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
)

// way is what somebody does with the backing past the cache.
type way uint8

const (
	changes  way = iota
	discards     // changes, and what is pending is forgotten
	looks        // changes nothing
)

// Change lets fn change the range in the backing (a direct write, a punch, a truncation): what was
// published there is in the backing before, what was cached is dropped, and nothing enters the
// cache there meanwhile, so that nobody who reads by way of the cache sees older bytes than
// somebody who has seen the backing's. Loans that are out stay as they are. fn may take its time,
// but must not wait for the cache about the same range.
func (c *Cache) Change(ctx context.Context, id Key, off, length int64, fn func() error) error {
	return c.change(ctx, id, off, length, fn, changes)
}

// Look lets fn read the range in the backing: what was published there is in the backing before,
// and no publication or change of it is half done meanwhile. What is cached stays.
func (c *Cache) Look(ctx context.Context, id Key, off, length int64, fn func() error) error {
	return c.change(ctx, id, off, length, fn, looks)
}

// Discard is Change of the whole object for its removal: what was published and is not in the
// backing yet is forgotten instead of written.
func (c *Cache) Discard(ctx context.Context, id Key, fn func() error) error {
	return c.change(ctx, id, 0, stripe.MaxObjectBytes, fn, discards)
}

func (c *Cache) change(ctx context.Context, id Key, off, length int64, fn func() error,
	how way) error {
	if off < 0 || length < 0 || off > stripe.MaxObjectBytes {
		return errs.Newf(errs.Invalid, "unifier.Change", id.String(), "offset %d, length %d", off,
			length)
	}
	if fn == nil {
		fn = func() error { return nil }
	}
	if length == 0 {
		return fn()
	}
	x := c.index
	x.Lock()
	o, l := x.Open(id, Hint{}), c.freeLocks.Get()
	end := off + min(length, math.MaxInt64-off) - 1
	l.Spans = append(l.Spans, index.Span{First: off >> o.Shift(), Last: end >> o.Shift()})
	l.Shared = how == looks
	err := x.LockRange(ctx, o, l)
	locked := err == nil
	if locked && how != looks {
		x.DropSpans(o, l.Spans) // and the range lock lets nothing in
	}
	x.Unlock()
	if locked {
		if how == discards {
			c.back.Discard(id)
		} else {
			c.back.SettleSpans(id, l.Spans)
		}
		err = fn()
	}
	x.Lock()
	if locked {
		x.UnlockRange(o, l)
	}
	l.Reset()
	c.freeLocks.Put(l)
	x.Close(o)
	x.Unlock()
	return err
}
