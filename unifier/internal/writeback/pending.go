package writeback

import (
	"time"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
)

// Pending writes. A volatile write is acknowledged when its draft stands in its object's queue of
// pending writes. The draft holds its memory: whole units together with the cache, parts alone.
//
//	Writer.pending  oldest ... youngest, of all objects: what is old goes first
//	queue.drafts    the same, of one object: written in this order, but see merge.go
//	Draft.before    the pending write with an earlier number of the same slot
//
// Three rules keep the backing right:
//
//   - Of an object's pending writes those that overlap reach the backing in their order. Whoever
//     goes to the backing himself (a fill, a write through, Change) settles what is pending of his
//     units first, under his range lock, which keeps new pending writes away. Flushing needs no
//     range lock and no memory.
//   - A slot's numbers reach the backing in their order, of whatever objects they are: a store that
//     has noted a number takes lower ones for repeats, so an earlier write that a crash has lost
//     could not be sent again.
//   - When a pending write cannot be written, all pending writes are dropped, with what is cached
//     of them, and Losses is raised: the clients send again all that was not synced.

// pendLocked puts the draft at the end of the queues.
func (w *Writer) pendLocked(d *Draft) {
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
	if last := q.drafts.Last(); last == nil || !last.meets(d) {
		q.row = 0
	}
	q.row, q.bytes = q.row+d.size, q.bytes+d.size
	w.fullLocked(q)
	q.drafts.PushLast(&d.inQueue, d)
	w.pending.PushLast(&d.inAll, d)
	for _, s := range d.pub.Range.Spans {
		for unit := s.First; unit <= s.Last; unit++ {
			q.units[unit]++
		}
	}
	w.dirtyBytes += d.held
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

// unpendLocked takes drafts out of the queues, and ends them.
func (w *Writer) unpendLocked(drafts []*Draft) {
	var held int64
	for _, d := range drafts {
		held += d.held
		w.forgetLocked(d)
	}
	w.index.Lock()
	for _, d := range drafts {
		d.endLocked()
	}
	w.index.Unlock()
	w.dirty.Release(held)
}

func (w *Writer) forgetLocked(d *Draft) {
	q := w.queues[d.id()]
	q.drafts.Remove(&d.inQueue)
	w.pending.Remove(&d.inAll)
	q.bytes -= d.size
	w.fullLocked(q)
	for _, s := range d.pub.Range.Spans {
		for unit := s.First; unit <= s.Last; unit++ {
			if q.units[unit]--; q.units[unit] <= 0 {
				delete(q.units, unit)
			}
		}
	}
	if q.drafts.Empty() {
		delete(w.queues, d.id())
		q.obj, q.row, q.most = nil, 0, 0
		w.freeQueues.Put(q)
	}
	w.leaveSlotLocked(d)
	w.dirtyBytes -= d.held
	w.promised.Add(-d.space())
	w.waiting.Add(-1)
}

// meets tells whether the next draft goes on where d ends, so that both may be written in one step.
func (d *Draft) meets(next *Draft) bool {
	return len(d.pieces) == 1 && len(next.pieces) == 1 && d.pieces[0].End() == next.pieces[0].Off
}

// fullLocked notes whether a queue is full: it is that of a stream, and what is pending of it makes
// one write to the backing of the largest size. Waiting would not make that better, and a disk that
// works while the stream goes on has less to do when it is synced.
func (w *Writer) fullLocked(q *queue) {
	full := q.row >= runMax && q.bytes >= runMax
	switch {
	case full && !q.full:
		w.full++
	case !full && q.full:
		w.full--
	}
	q.full = full
}

// leaveSlotLocked closes the gap that the draft leaves among the pending writes of its slot.
func (w *Writer) leaveSlotLocked(d *Draft) {
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

// loseLocked drops all pending writes but those that somebody else is writing at the moment, and
// what is cached of them. The ones in the air have no earlier ones left that they would outrun.
func (w *Writer) loseLocked() {
	w.losses.Add(1)
	w.dropLocked(nil)
	w.sessions.Store(&stripe.Sessions{})
	w.since = since{} // what was written before may now be sent again by those who wrote it
	if w.keeper != nil {
		w.keeper.NewLife()
	}
}

// dropLocked drops what is pending of an object, or of all for nil, in the same way.
func (w *Writer) dropLocked(only *queue) {
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
	w.unpendLocked(lost)
}
