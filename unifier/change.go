package unifier

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
)

// Change lets fn change the range in the backing (a direct write, a punch, a truncation): what was
// published there is in the backing before, nothing enters or leaves the cache there meanwhile, and
// what was cached is dropped afterwards, whether fn succeeds or not. Loans that are out stay as
// they are. fn may take its time, but must not wait for the cache about the same range.
func (c *Cache) Change(ctx context.Context, id Key, off, length int64, fn func() error) error {
	return c.change(ctx, id, off, length, fn, false)
}

// Discard is Change of the whole object for its removal: what was published and is not in the
// backing yet is forgotten instead of written.
func (c *Cache) Discard(ctx context.Context, id Key, fn func() error) error {
	return c.change(ctx, id, 0, stripe.MaxObjectBytes, fn, true)
}

// Invalidate drops what is cached of the range, because the backing was changed behind the cache.
// See Change for a way that leaves no gap.
func (c *Cache) Invalidate(id Key, off, length int64) {
	_ = c.change(context.Background(), id, off, length, nil, false)
}

func (c *Cache) change(ctx context.Context, id Key, off, length int64, fn func() error,
	discard bool) error {
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
	defer func() { *cl, c.spareClaims = claim{spans: cl.spans[:0], next: c.spareClaims}, cl }()
	cl.spans = append(cl.spans, span{off >> o.shift, end >> o.shift})
	if _, err := c.claimLocked(ctx, o, cl); err != nil {
		return err
	}
	if discard {
		c.discardLocked(o)
	} else if o.first != nil {
		c.settleSpansLocked(ctx, o, cl.spans)
	}
	var err error
	if fn != nil {
		c.mu.Unlock()
		err = fn()
		c.mu.Lock()
	}
	if !c.defects.keepChanged {
		c.dropSpansLocked(o, cl.spans)
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
