package writeback

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/wire"
)

// SettleSpans returns when nothing is pending of the units, whose range the caller has locked,
// whether somebody still wants that or not. A loss is not his concern: then the backing's bytes are
// what counts.
func (w *Writer) SettleSpans(id index.Key, spans []index.Span) {
	if w.waiting.Load() == 0 {
		return // the range lock keeps others from adding to what is pending there
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settleSpansLocked(id, spans)
}

func (w *Writer) settleSpansLocked(id index.Key, spans []index.Span) {
	q := w.queues[id]
	if q == nil {
		return
	}
	for _, s := range spans {
		if q.touches(s) {
			_ = w.flushLocked(context.Background(), id, w.order)
			return
		}
	}
}

// settleBefore returns when all is in the backing that has to be there before a draft that goes
// through: everything, where space is short.
func (w *Writer) settleBefore(ctx context.Context, d *Draft, dur stripe.Durability,
	short bool) error {
	if w.waiting.Load() == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if short {
		_ = w.flushAllLocked(ctx) // what is lost of others is their concern
	}
	if w.queues[d.id()] != nil && dur == stripe.Volatile {
		// A client may use one slot for all of an object's volatile writes: none overtakes.
		_ = w.flushLocked(ctx, d.id(), w.order)
	}
	w.settleSpansLocked(d.id(), d.pub.Range.Spans)
	return w.settleSlotLocked(ctx, d.stamp)
}

// settleSlotLocked returns when no earlier write of the stamp's slot is pending.
func (w *Writer) settleSlotLocked(ctx context.Context, st wire.Stamp) error {
	if !stripe.Numbered(st) {
		return nil
	}
	d := w.slots[stripe.SessionSlot{Session: st.Session, Slot: st.Slot}]
	if d == nil {
		return nil
	}
	return w.flushLocked(ctx, d.id(), d.order)
}

// SettleStamp is unifier.Cache.SettleStamp.
func (w *Writer) SettleStamp(ctx context.Context, st wire.Stamp) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errs.Wrap("unifier.SettleStamp", "", w.settleSlotLocked(ctx, st))
}

// Settle is unifier.Cache.Settle.
func (w *Writer) Settle(ctx context.Context, id index.Key, off, length int64) error {
	const op = "unifier.Settle"
	w.mu.Lock()
	defer w.mu.Unlock()
	if id == (index.Key{}) {
		return errs.Wrap(op, "", w.flushAllLocked(ctx))
	}
	q := w.queues[id]
	if q == nil || length <= 0 {
		return nil
	}
	shift, end := q.obj.Shift(), off+min(length, math.MaxInt64-off)-1
	if !q.touches(index.Span{First: off >> shift, Last: end >> shift}) {
		return nil
	}
	return errs.Wrap(op, id.String(), w.flushLocked(ctx, id, w.order))
}

// SettleFile is unifier.Cache.SettleFile.
func (w *Writer) SettleFile(ctx context.Context, file uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	mark := w.order
	var ids []index.Key
	for id := range w.queues {
		if id.File == file {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		if err := w.flushLocked(ctx, id, mark); err != nil {
			return errs.Wrap("unifier.SettleFile", id.String(), err)
		}
	}
	return nil
}

// Sync is unifier.Cache.Sync.
func (w *Writer) Sync(ctx context.Context, id index.Key) error {
	if w.dirty != nil {
		if err := w.Settle(ctx, id, 0, math.MaxInt64); err != nil {
			return err
		}
	}
	return w.backing.Sync(ctx, id)
}

// Discard forgets the object's pending writes, all of whose range the caller has locked; those that
// are being written are waited for.
func (w *Writer) Discard(id index.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for q := w.queues[id]; q != nil; q = w.queues[id] {
		if q.flushing {
			_ = w.awaitFlushLocked(context.Background())
			continue
		}
		w.unpendLocked([]*Draft{q.drafts.Last()})
	}
}
