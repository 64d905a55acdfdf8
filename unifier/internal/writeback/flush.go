package writeback

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/wire"
)

const (
	runMax     = 4 << 20 // bytes of one write to the backing
	throughMax = 1024    // objects that are remembered because writing back to them has failed
	lookMax    = 64      // pending writes that a flusher looks at to find one that it can write
)

// Flush writes all that is pending now.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flushAllLocked(ctx)
}

func (w *Writer) flushAllLocked(ctx context.Context) error {
	mark := w.order
	for d := w.pending.First(); d != nil && d.order <= mark; d = w.pending.First() {
		if err := w.flushLocked(ctx, d.id(), mark); err != nil {
			return err
		}
	}
	return nil
}

// flushLocked writes what is pending of the object, up to the order mark. It lets go of the lock.
func (w *Writer) flushLocked(ctx context.Context, id index.Key, mark uint64) error {
	losses := w.losses.Load()
	for q := w.queues[id]; q != nil && q.drafts.First().order <= mark; q = w.queues[id] {
		var err error
		if first := w.earliestLocked(q); first.flushing {
			err = w.awaitFlushLocked(ctx)
		} else {
			err = w.writeRunLocked(first)
		}
		if err != nil {
			return err
		}
	}
	if w.losses.Load() != losses {
		return errs.Newf(errs.IO, "unifier.flush", id.String(), "pending writes were lost")
	}
	return nil
}

// earliestLocked is the queue whose first write must be written before that of q: q itself, unless
// an earlier number of its slot is pending elsewhere. Each step goes to an older write, so there
// is an end.
func (w *Writer) earliestLocked(q *queue) *queue {
	for {
		b := q.drafts.First().before
		if b == nil || b.pub.Object == q.obj {
			return q
		}
		q = w.queues[b.id()]
	}
}

// awaitFlushLocked waits until some write has reached the backing, or has failed to.
func (w *Writer) awaitFlushLocked(ctx context.Context) error {
	return w.flushed.Wait(ctx, &w.mu)
}

// writeRunLocked writes the queue's first writes, which nobody else is doing. A change that has
// begun is carried out, whoever has given up waiting for it. It lets go of the lock.
func (w *Writer) writeRunLocked(q *queue) error {
	r, id := w.freeRuns.Get(), q.obj.ID()
	w.fillRunLocked(r, q)
	q.flushing = true
	w.mu.Unlock()
	err := r.write(w.backing, id)
	w.mu.Lock()
	q.flushing = false
	for _, d := range r.drafts {
		d.flying = false
	}
	lost := false
	switch {
	case err == nil:
		w.stats.Flushes++
		w.stats.Flushed += uint64(len(r.drafts))
		w.unpendLocked(r.drafts)
	case errs.KindOf(err) == errs.Fenced:
		// Fenced after they were acknowledged: nobody may see them any more, and who wrote them is
		// told so with his next request. Others have lost nothing.
		w.dropLocked(q)
		err = nil
	default:
		lost = true
		if len(w.through) >= throughMax {
			clear(w.through)
		}
		w.through[id] = true
		w.loseLocked()
	}
	clear(r.drafts)
	r.drafts, r.stamps, r.calls = r.drafts[:0], r.stamps[:0], r.calls[:0]
	if cap(r.parts) <= keptMax {
		w.freeRuns.Put(r)
	}
	w.flushed.WakeAll()
	if lost && w.cfg.OnLoss != nil {
		w.mu.Unlock()
		w.cfg.OnLoss(id, err)
		w.mu.Lock()
	}
	return err
}

// fillRunLocked takes the queue's first drafts into the run, and settles how they are written.
func (w *Writer) fillRunLocked(r *run, q *queue) {
	r.placer = w.placer
	r.collectLocked(q, w.mergeMax)
	n := r.arrange()
	r.learn(q, n)
	for _, d := range r.drafts[n:] {
		d.flying = false
	}
	clear(r.drafts[n:])
	r.drafts = r.drafts[:n]
	first := unnumbered(r.drafts[n-1].stamp)
	for _, d := range r.drafts {
		first.TruncSeq = max(first.TruncSeq, d.stamp.TruncSeq)
	}
	r.stamps = append(r.stamps, first)
}

// unnumbered is the stamp of a part of a request.
func unnumbered(st wire.Stamp) wire.Stamp {
	st.Session, st.Slot, st.Seq = 0, 0, 0
	return st
}

// write makes the calls. The first stamp has no number: the cache has found out already that no
// request is a repeat.
func (r *run) write(backing Backing, id index.Key) error {
	if len(r.calls) == 0 {
		return r.writeAlone(backing, id)
	}
	return r.writeMerged(backing, id)
}

// writeAlone writes a draft whose pieces do not rise, in the order of its list: a call for each
// piece, the last of which has the number.
func (r *run) writeAlone(backing Backing, id index.Key) error {
	d, from := r.drafts[0], 0
	for i, p := range d.pieces {
		if i == len(d.pieces)-1 && stripe.Numbered(d.stamp) {
			r.stamps = append(r.stamps, d.stamp)
		}
		err := backing.WriteSums(context.Background(), id, d.bytes[from:d.cuts[i]], p.Off, d.sumsOf(i),
			r.stamps, stripe.Volatile)
		if err != nil {
			return err
		}
		from = d.cuts[i]
	}
	return nil
}

// flushSoonLocked wakes the flushers, behind a draft that was put into its queue, when they have
// to work at once, or to look at the clock. Who writes the queue back goes on with it. Somebody
// who waits for memory wakes them himself: see memory.Pool.Starved.
func (w *Writer) flushSoonLocked(d *Draft) {
	if !w.flushing && !w.closed.Load() {
		w.flushing = true
		for range flushers {
			w.flushers.Go(w.flusher)
		}
	}
	q := w.queues[d.id()]
	if w.pending.First() == d || q.full && !q.flushing || w.tooDirtyLocked() {
		select {
		case w.kick <- struct{}{}:
		default:
		}
	}
}

// tooDirtyLocked tells whether pending writes are written without waiting for their age.
func (w *Writer) tooDirtyLocked() bool { return w.dirtyBytes > w.dirty.Total()/2 }

// memoryShort tells whether somebody waits for memory, some of which pending writes hold.
func (w *Writer) memoryShort() bool {
	w.index.Lock()
	defer w.index.Unlock()
	return w.index.Memory.Short()
}

// flusher writes back what is old, and what is too much, until the writer stops.
func (w *Writer) flusher() {
	timer := time.NewTimer(w.cfg.DirtyAge)
	defer timer.Stop()
	for {
		w.mu.Lock()
		q, wait := w.dueLocked()
		if q != nil {
			_ = w.writeRunLocked(q) // Losses and OnLoss tell
			w.mu.Unlock()
			continue
		}
		w.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-w.kick:
		case <-w.index.Memory.Starved():
		case <-timer.C:
		case <-w.life.Done():
			return
		}
	}
}

// dueLocked is a queue whose first write is to be written now; nil: look again later.
func (w *Writer) dueLocked() (*queue, time.Duration) {
	d := w.pending.First()
	if d == nil {
		return nil, time.Hour
	}
	atOnce := w.tooDirtyLocked() || w.memoryShort()
	now := time.Now()
	wait := d.at.Add(w.cfg.DirtyAge).Sub(now) // of the oldest
	for range lookMax {
		own := w.queues[d.id()]
		old := atOnce || now.Sub(d.at) >= w.cfg.DirtyAge
		if !old && w.full == 0 {
			break
		}
		if q := w.earliestLocked(own); (old || own.full) && !q.flushing {
			return q, 0
		}
		if d = d.inAll.Next(); d == nil {
			break
		}
	}
	if !atOnce && wait > 0 {
		return nil, wait
	}
	return nil, time.Millisecond // others are writing all of it
}
