package writeback

import (
	"context"
	"math"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/wire"
)

// Pending writes. A volatile write is acknowledged when its draft stands in its object's queue of
// pending writes. The draft holds its memory: whole units together with the cache, parts alone.
//
//	Writer.pending  oldest ... youngest, of all objects: what is old goes first
//	queue.drafts    the same, of one object: written strictly in this order
//	Draft.before    the pending write with an earlier number of the same slot
//
// Three rules keep the backing right:
//
//   - An object's pending writes reach the backing in their order. Whoever goes to the backing
//     himself (a fill, a write through, Change) settles what is pending of his units first, under
//     his range lock, which keeps new pending writes away. Flushing needs no range lock and no
//     memory.
//   - A slot's numbers reach the backing in their order, of whatever objects they are: a store that
//     has noted a number takes lower ones for repeats, so an earlier write that a crash has lost
//     could not be sent again.
//   - When a pending write cannot be written, all pending writes are dropped, with what is cached
//     of them, and Losses is raised: the clients send again all that was not synced.

// queue is what is pending of one object. It exists while something is. Guarded by Writer.mu.
type queue struct {
	obj      *index.Object // open while something is pending of it
	drafts   list.List[Draft]
	units    map[int64]int32 // how many of the drafts touch a unit
	flushing bool            // somebody writes the first ones back
}

// writesBack tells whether volatile writes may be acknowledged before the backing has them.
func (w *Writer) writesBack() bool { return w.dirty != nil && w.admitter != nil }

// mayPend tells whether a volatile write of this draft may be pending.
func (w *Writer) mayPend(d *Draft) bool {
	if !w.writesBack() || d.held > w.dirty.Total()/4 || w.closed.Load() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.through[d.id()]
}

// keep publishes the draft and makes it pending; it ends the range lock. The memory counts as dirty
// from then on, not as being drafted.
func (d *Draft) keep() {
	w, x, held := d.w, d.w.index, d.held
	d.pub.Hold = true
	x.Lock()
	x.Exchange(&d.pub)
	x.Unlock()
	w.mu.Lock()
	w.pend(d)
	for _, p := range d.pieces {
		w.since.add(d.id(), p)
	}
	x.Lock()
	x.UnlockRange(d.pub.Object, &d.pub.Range) // before a flusher can end the draft
	x.Unlock()
	w.flushSoon()
	w.mu.Unlock()
	w.drafts.Release(held)
}

// pend puts the draft at the end of the queues.
func (w *Writer) pend(d *Draft) {
	q := w.queues[d.id()]
	if q == nil {
		q = w.freeQueues.Get()
		q.obj = d.pub.Object
		if q.units == nil {
			q.units = map[int64]int32{}
		}
		w.queues[d.id()] = q
	}
	w.order++
	d.order, d.at = w.order, time.Now()
	q.drafts.PushLast(&d.inQueue, d)
	w.pending.PushLast(&d.inAll, d)
	for _, s := range d.pub.Range.Spans {
		for unit := s.First; unit <= s.Last; unit++ {
			q.units[unit]++
		}
	}
	w.dirtyBytes += d.held
	w.promised.Add(d.space())
	w.waiting.Add(1)
	if stripe.Numbered(d.stamp) {
		key := stripe.SessionSlot{Session: d.stamp.Session, Slot: d.stamp.Slot}
		if d.before = w.slots[key]; d.before != nil {
			d.before.after = d
		}
		w.slots[key] = d
		w.sessions.Load().Note(d.stamp)
	}
}

// unpend takes drafts out of the queues, and ends them.
func (w *Writer) unpend(drafts []*Draft) {
	var held int64
	for _, d := range drafts {
		held += d.held
		w.forget(d)
	}
	w.index.Lock()
	for _, d := range drafts {
		d.endLocked()
	}
	w.index.Unlock()
	w.dirty.Release(held)
}

func (w *Writer) forget(d *Draft) {
	q := w.queues[d.id()]
	q.drafts.Remove(&d.inQueue)
	w.pending.Remove(&d.inAll)
	for _, s := range d.pub.Range.Spans {
		for unit := s.First; unit <= s.Last; unit++ {
			if q.units[unit]--; q.units[unit] <= 0 {
				delete(q.units, unit)
			}
		}
	}
	if q.drafts.Empty() {
		delete(w.queues, d.id())
		q.obj = nil
		w.freeQueues.Put(q)
	}
	w.leaveSlot(d)
	w.dirtyBytes -= d.held
	w.promised.Add(-d.space())
	w.waiting.Add(-1)
}

// leaveSlot closes the gap that the draft leaves among the pending writes of its slot.
func (w *Writer) leaveSlot(d *Draft) {
	if !stripe.Numbered(d.stamp) {
		return
	}
	if d.before != nil {
		d.before.after = d.after
	}
	key := stripe.SessionSlot{Session: d.stamp.Session, Slot: d.stamp.Slot}
	switch {
	case d.after != nil:
		d.after.before = d.before
	case d.before != nil:
		w.slots[key] = d.before
	default:
		delete(w.slots, key)
	}
	d.before, d.after = nil, nil
}

// waitsFor is the pending write that has to reach the backing before d; nil if there is none.
func (w *Writer) waitsFor(d *Draft) *Draft {
	if w.defects.loseSlots {
		return nil
	}
	return d.before
}

// touches tells whether something of the span is pending.
func (q *queue) touches(s index.Span) bool {
	if s.Last-s.First >= int64(len(q.units)) {
		for unit := range q.units {
			if unit >= s.First && unit <= s.Last {
				return true
			}
		}
		return false
	}
	for unit := s.First; unit <= s.Last; unit++ {
		if q.units[unit] > 0 {
			return true
		}
	}
	return false
}

// SettleSpans returns when nothing is pending of the units, whose range the caller has locked,
// whether somebody still wants that or not. A loss is not his concern: then the backing's bytes are
// what counts.
func (w *Writer) SettleSpans(id index.Key, spans []index.Span) {
	if w.waiting.Load() == 0 {
		return // the range lock keeps others from adding to what is pending there
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settleSpans(id, spans)
}

func (w *Writer) settleSpans(id index.Key, spans []index.Span) {
	q := w.queues[id]
	if q == nil {
		return
	}
	for _, s := range spans {
		if q.touches(s) {
			_ = w.flush(context.Background(), id, w.order)
			return
		}
	}
}

// settleBefore returns when all is in the backing that has to be there before a draft that goes
// through.
func (w *Writer) settleBefore(ctx context.Context, d *Draft, dur stripe.Durability) error {
	if w.waiting.Load() == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queues[d.id()] != nil && dur == stripe.Volatile {
		// A client may use one slot for all of an object's volatile writes: none overtakes.
		_ = w.flush(ctx, d.id(), w.order)
	}
	w.settleSpans(d.id(), d.pub.Range.Spans)
	return w.settleSlot(ctx, d.stamp)
}

// settleSlot returns when no earlier write of the stamp's slot is pending.
func (w *Writer) settleSlot(ctx context.Context, st wire.Stamp) error {
	if !stripe.Numbered(st) || w.defects.loseSlots {
		return nil
	}
	d := w.slots[stripe.SessionSlot{Session: st.Session, Slot: st.Slot}]
	if d == nil {
		return nil
	}
	return w.flush(ctx, d.id(), d.order)
}

// SettleStamp returns when the backing has every write that was published with an earlier number
// of the stamp's slot. Whoever takes a numbered request to the backing past the cache (a direct
// write, a punch) calls it first: a store that has noted a number takes all lower ones of the
// slot for repeats, so a pending write would be lost if it had to be sent again.
func (w *Writer) SettleStamp(ctx context.Context, st wire.Stamp) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errs.Wrap("unifier.SettleStamp", "", w.settleSlot(ctx, st))
}

// Settle returns when the backing has all that was published in the range before the call. The
// zero Key means all objects.
func (w *Writer) Settle(ctx context.Context, id index.Key, off, length int64) error {
	const op = "unifier.Settle"
	w.mu.Lock()
	defer w.mu.Unlock()
	if id == (index.Key{}) {
		return errs.Wrap(op, "", w.flushAll(ctx))
	}
	q := w.queues[id]
	if q == nil || length <= 0 {
		return nil
	}
	shift, end := q.obj.Shift(), off+min(length, math.MaxInt64-off)-1
	if !q.touches(index.Span{First: off >> shift, Last: end >> shift}) {
		return nil
	}
	return errs.Wrap(op, id.String(), w.flush(ctx, id, w.order))
}

// SettleFile returns when the backing has all that was published of a file's objects before the
// call. What is pending of other files stays pending, but for earlier numbers of the same slots.
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
		if err := w.flush(ctx, id, mark); err != nil {
			return errs.Wrap("unifier.SettleFile", id.String(), err)
		}
	}
	return nil
}

// Sync makes all that was published of the object durable. The zero Key means all objects.
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
			_ = w.awaitFlush(context.Background())
			continue
		}
		w.unpend([]*Draft{q.drafts.Last()})
	}
}

// lose drops all pending writes but those that somebody else is writing at the moment, and what is
// cached of them. The ones in the air have no earlier ones left that they would outrun.
func (w *Writer) lose() {
	w.losses.Add(1)
	w.drop(nil)
	w.sessions.Store(&stripe.Sessions{})
	w.since = since{} // what was written before may now be sent again by those who wrote it
	if w.keeper != nil {
		w.keeper.NewLife()
	}
}

// drop drops what is pending of an object, or of all for nil, in the same way.
func (w *Writer) drop(only *queue) {
	var lost []*Draft
	for d := w.pending.First(); d != nil; d = d.inAll.Next() {
		if !d.flying && (only == nil || w.queues[d.id()] == only) {
			lost = append(lost, d)
		}
	}
	w.index.Lock()
	for _, d := range lost {
		w.index.Lose(d.pub.Object, d.pub.Range.Spans)
	}
	w.index.Unlock()
	w.unpend(lost)
}
