package unifier

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

const (
	flushers   = 2       // goroutines that write back
	runMax     = 4 << 20 // bytes of one write to the backing
	throughMax = 1024    // objects that are remembered because writing back to them has failed
	lookMax    = 64      // pending writes that a flusher looks at to find one that it can write
)

// run is a row of pending writes of one object that reach the backing in one call.
type run struct {
	drafts []*Draft
	bufs   [][]byte
	sums   []uint32
	stamps []wire.Stamp
	next   *run // in Cache.spareRuns
}

// flushLocked writes what is pending of the object, up to the order mark. It lets go of the lock.
func (c *Cache) flushLocked(ctx context.Context, o *object, mark uint64) error {
	losses := c.losses.Load()
	o.busy++
	defer func() {
		o.busy--
		c.tidyLocked(o)
	}()
	for o.first != nil && o.first.order <= mark {
		t := c.earliestLocked(o)
		if t.flushing {
			if err := c.awaitFlushLocked(ctx); err != nil {
				return err
			}
			continue
		}
		if err := c.writeRunLocked(t); err != nil {
			return err
		}
	}
	if c.losses.Load() != losses {
		return errs.Newf(errs.IO, "unifier.flush", o.id.String(), "pending writes were lost")
	}
	return nil
}

// flushAllLocked writes all that is pending now.
func (c *Cache) flushAllLocked(ctx context.Context) error {
	mark := c.order
	for c.pending != nil && c.pending.order <= mark {
		if err := c.flushLocked(ctx, c.pending.obj, mark); err != nil {
			return err
		}
	}
	return nil
}

// earliestLocked is the object whose first pending write must be written before that of o: o
// itself, unless an earlier number of its slot is pending elsewhere. Each step goes to an older
// write, so there is an end.
func (c *Cache) earliestLocked(o *object) *object {
	for {
		b := c.waitsLocked(o.first)
		if b == nil || b.obj == o {
			return o
		}
		o = b.obj
	}
}

// awaitFlushLocked waits until some write has reached the backing, or has failed to.
func (c *Cache) awaitFlushLocked(ctx context.Context) error {
	return c.attendLocked(ctx, &c.flushed)
}

// writeRunLocked writes the object's first pending writes, which nobody else is doing. A change
// that has begun is carried out, whoever has given up waiting for it.
func (c *Cache) writeRunLocked(o *object) error {
	r := c.spareRuns
	if r == nil {
		r = &run{}
	} else {
		c.spareRuns = r.next
	}
	id := o.id
	c.fillRunLocked(r, o)
	o.flushing = true
	o.busy++
	c.mu.Unlock()
	err := r.write(c.backing, id)
	c.mu.Lock()
	o.flushing = false
	for _, d := range r.drafts {
		d.flying = false
	}
	if errs.KindOf(err) == errs.Fenced {
		// Fenced after they were acknowledged: nobody may see them any more, and who wrote them is
		// told so with his next request. Others have lost nothing.
		c.dropPendingLocked(o)
		err = nil
	} else if err != nil {
		if len(c.through) >= throughMax {
			clear(c.through)
		}
		c.through[id] = true
		c.losses.Add(1)
		c.loseLocked()
	} else {
		c.stats.Flushes++
		c.stats.Flushed += uint64(len(r.drafts))
		for _, d := range r.drafts {
			c.unpendLocked(d)
		}
	}
	o.busy--
	c.tidyLocked(o)
	clear(r.drafts)
	clear(r.bufs)
	*r = run{drafts: r.drafts[:0], bufs: r.bufs[:0], sums: r.sums[:0], stamps: r.stamps[:0],
		next: c.spareRuns}
	c.spareRuns = r
	c.flushed.dismiss()
	if err != nil && c.cfg.OnLoss != nil {
		c.mu.Unlock()
		c.cfg.OnLoss(id, err)
		c.mu.Lock()
	}
	return err
}

// fillRunLocked collects neighbours: each continues where the one before it ends, and has no
// earlier number of its slot elsewhere.
func (c *Cache) fillRunLocked(r *run, o *object) {
	d := o.first
	for bytes := d.size; ; bytes += d.size {
		d.flying = true
		r.drafts = append(r.drafts, d)
		next := d.behind
		if next == nil || len(d.pieces) != 1 || len(next.pieces) != 1 ||
			d.pieces[0].End() != next.pieces[0].Off || bytes+next.size > runMax ||
			len(r.drafts) >= stripe.StampsMax {
			break
		}
		if b := c.waitsLocked(next); b != nil && !(b.flying && b.obj == o) {
			break
		}
		d = next
	}
	first := unnumbered(d.stamp)
	for _, d := range r.drafts {
		first.TruncSeq = max(first.TruncSeq, d.stamp.TruncSeq)
	}
	r.stamps = append(r.stamps, first)
	for _, d := range r.drafts {
		if stripe.Numbered(d.stamp) {
			r.stamps = append(r.stamps, d.stamp)
		}
	}
}

// write makes the calls: one, or one for each piece of a list, the last of which has the numbers.
// The first stamp has none: the cache has found out already that no request is a repeat.
func (r *run) write(backing Backing, id Key) error {
	ctx := context.Background()
	if len(r.drafts) == 1 {
		d, from := r.drafts[0], 0
		for i, p := range d.pieces {
			stamps := r.stamps
			if i < len(d.pieces)-1 {
				stamps = stamps[:1]
			}
			err := backing.WriteSums(ctx, id, d.bytes[from:d.cuts[i]], p.Off, d.sumsOf(i), stamps,
				stripe.Volatile)
			if err != nil {
				return err
			}
			from = d.cuts[i]
		}
		return nil
	}
	summed := true
	for _, d := range r.drafts {
		r.bufs = append(r.bufs, d.bytes...)
		sums := d.sumsOf(0)
		r.sums = append(r.sums, sums...)
		summed = summed && sums != nil
	}
	sums := r.sums
	if !summed {
		sums = nil
	}
	return backing.WriteSums(ctx, id, r.bufs, r.drafts[0].pieces[0].Off, sums, r.stamps,
		stripe.Volatile)
}

// flushSoonLocked wakes the flushers when they have to work at once, or to look at the clock.
func (c *Cache) flushSoonLocked() {
	if !c.flushing && !c.closed {
		c.flushing = true
		c.kick = make(chan struct{}, flushers)
		for range flushers {
			c.crew.Add(1)
			go c.flusher()
		}
	}
	if c.pending == c.lastPending || c.muchLocked() {
		c.pressLocked()
	}
}

// pressLocked makes the flushers look.
func (c *Cache) pressLocked() {
	if c.pending == nil {
		return
	}
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// muchLocked tells whether pending writes are written without waiting for their age: too many are
// dirty, or somebody waits for memory, some of which they hold.
func (c *Cache) muchLocked() bool {
	return c.dirtyBytes > c.dirty.Total()/2 || !c.queue.Empty() || !c.gate.Empty()
}

// flusher writes back what is old, and what is too much, until the cache closes.
func (c *Cache) flusher() {
	defer c.crew.Done()
	timer := time.NewTimer(c.cfg.DirtyAge)
	defer timer.Stop()
	for {
		c.mu.Lock()
		o, wait := c.dueLocked()
		if o != nil {
			_ = c.writeRunLocked(o) // Losses and OnLoss tell
			c.mu.Unlock()
			continue
		}
		c.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-c.kick:
		case <-timer.C:
		case <-c.life.Done():
			return
		}
	}
}

// dueLocked is an object whose first pending write is to be written now; nil: look again later.
func (c *Cache) dueLocked() (*object, time.Duration) {
	d := c.pending
	if d == nil {
		return nil, time.Hour
	}
	much := c.muchLocked()
	now := c.now()
	for range lookMax {
		left := d.since.Add(c.cfg.DirtyAge).Sub(now)
		if !much && left > 0 {
			return nil, left
		}
		if o := c.earliestLocked(d.obj); !o.flushing {
			return o, 0
		}
		if d = d.nextAll; d == nil {
			break
		}
	}
	return nil, time.Millisecond // others are writing all of it
}
