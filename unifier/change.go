package unifier

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
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
	const op = "unifier.Change"
	if off < 0 || length < 0 || off > stripe.MaxObjectBytes {
		return errs.Newf(errs.Invalid, op, id.String(), "offset %d, length %d", off, length)
	}
	if length == 0 {
		if fn == nil {
			return nil
		}
		return fn()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objectLocked(id, Hint{})
	o.busy++
	defer func() {
		o.busy--
		c.tidyLocked(o)
	}()
	end := off + min(length, math.MaxInt64-off) - 1
	cl := c.spareClaims
	if cl == nil {
		cl = &claim{}
	} else {
		c.spareClaims = cl.next
	}
	defer func() {
		cl.reset()
		cl.next, c.spareClaims = c.spareClaims, cl
	}()
	cl.spans = append(cl.spans, span{off >> o.shift, end >> o.shift})
	cl.shared = how == looks
	if _, err := c.claimLocked(ctx, o, cl); err != nil {
		return err
	}
	if how == discards {
		c.discardLocked(o)
	} else if o.first != nil {
		c.settleSpansLocked(o, cl.spans)
	}
	if how != looks {
		c.dropSpansLocked(o, cl.spans)
	}
	var err error
	if fn != nil {
		c.mu.Unlock()
		err = fn()
		c.mu.Lock()
	}
	c.unclaimLocked(o, cl)
	return err
}

// discardLocked forgets the object's pending writes; those that are being written are waited for.
func (c *Cache) discardLocked(o *object) {
	for o.flushing {
		_ = c.awaitFlushLocked(context.Background())
	}
	for o.last != nil {
		c.unpendLocked(o.last)
	}
}
