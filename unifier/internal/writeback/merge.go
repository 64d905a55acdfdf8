package writeback

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/wire"
)

// Merging. Programs that share a file often write it in turns: the rows of neighbouring tiles, one
// record each. What each of them has pending is full of gaps, which the others fill. So a run may
// hold writes from all over an object, as they stand in its queue, and their pieces go to the
// backing by offset, those that meet in one call:
//
//	queue   a: rows 0 2 4 6      b: rows 1 3 5 7      c: a record far away
//	calls   |a0|b1|a2|b3|a4|b5|a6|b7|                 |c|
//
// That changes the order in which an object's writes reach the backing. Nobody can tell, because
// the writes of a run do not overlap, and because of three rules:
//
//   - A write's number goes with its last piece, as it does alone, and its pieces are in ascending
//     order; calls with numbers are made when all others are over, in their order: when the number
//     is noted all of the write is there. A write whose pieces are in another order goes alone.
//   - Of two writes of one slot the later one's number does not go before the earlier one's.
//   - What a crash cuts off in the middle is sent again as a whole, over the same bytes.

//
// Programs of several processes are not in step: what fills a gap may be pending behind all that
// another process has written. So a run that is not one stretch is large: it may have half of what
// may be pending. Its pieces are sorted under the lock, which takes a millisecond for piecesMax.

// piecesMax is how many pieces the writes of a run may have.
const piecesMax = 8192

// part is a piece of a draft in a run.
type part struct {
	off, end     int64
	draft, piece int // which, in the run and in the draft
}

// call is one to the backing: parts of a run that meet.
type call struct {
	first, end int // in run.parts
	numbers    int // of requests that end in it
}

// rising tells whether the draft's pieces are in ascending order and apart.
func (d *Draft) rising() bool {
	for i := 1; i < len(d.pieces); i++ {
		if d.pieces[i].Off < d.pieces[i-1].End() {
			return false
		}
	}
	return true
}

// collectLocked takes the queue's first drafts into the run: as many as one run may hold, and none
// that must wait for a write of its slot elsewhere.
func (r *run) collectLocked(q *queue, mergeMax int64) {
	bytes, pieces, stretch := int64(0), 0, true
	for d := q.drafts.First(); d != nil; d = d.inQueue.Next() {
		if n := len(r.drafts); n > 0 {
			b := d.before
			stretch = stretch && r.drafts[n-1].meets(d)
			room := mergeMax
			if stretch {
				room = runMax
			}
			if bytes+d.size > room || pieces+len(d.pieces) > piecesMax ||
				b != nil && !(b.flying && b.pub.Object == q.obj) {
				break
			}
		}
		rises := d.rising()
		if !rises && len(r.drafts) > 0 {
			break
		}
		d.flying, d.inRun = true, len(r.drafts)
		r.drafts = append(r.drafts, d)
		bytes, pieces = bytes+d.size, pieces+len(d.pieces)
		if !rises {
			break
		}
	}
}

// arrange makes calls of the first drafts, as many as can be merged, and returns how many that are.
func (r *run) arrange() int {
	n := len(r.drafts)
	for n > 1 {
		r.sort(n)
		cut := r.overlap(n)
		if cut == n {
			cut = r.divide(n)
		}
		if cut == n {
			break
		}
		n = cut
	}
	if n == 1 {
		r.parts, r.calls = r.parts[:0], r.calls[:0]
	}
	return n
}

// sort lists the pieces of the first n drafts by offset.
func (r *run) sort(n int) {
	r.parts = r.parts[:0]
	for i, d := range r.drafts[:n] {
		for k, p := range d.pieces {
			r.parts = append(r.parts, part{off: p.Off, end: p.End(), draft: i, piece: k})
		}
	}
	slices.SortFunc(r.parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.draft, b.draft))
	})
}

// overlap is the first draft that overlaps one before it, as far as one look shows; n if there is
// none.
func (r *run) overlap(n int) int {
	cut, far := n, 0 // the part that reaches farthest
	for i := 1; i < len(r.parts); i++ {
		x, y := &r.parts[far], &r.parts[i]
		if y.off < x.end {
			cut = min(cut, max(x.draft, y.draft))
		}
		if y.end > x.end {
			far = i
		}
	}
	return cut
}

// divide cuts the parts into calls, and returns the first draft whose number would go before that of
// an earlier write of its slot; n if there is none.
func (r *run) divide(n int) int {
	r.calls, r.last = append(r.calls[:0], call{}), append(r.last[:0], make([]int, n)...)
	begin := 0
	for i := range r.parts {
		p, c := &r.parts[i], &r.calls[len(r.calls)-1]
		if i > begin && (p.off != r.parts[i-1].end || p.end-r.parts[begin].off > runMax ||
			c.numbers == stripe.StampsMax) {
			r.calls, begin = append(r.calls, call{first: i}), i
			c = &r.calls[len(r.calls)-1]
		}
		c.end = i + 1
		if d := r.drafts[p.draft]; p.piece == len(d.pieces)-1 && stripe.Numbered(d.stamp) {
			c.numbers++
		}
		r.last[p.draft] = len(r.calls) // of its last piece in the end, because they rise
	}
	for i, d := range r.drafts[:n] {
		if b := d.before; b != nil && b.flying && b.pub.Object == d.pub.Object &&
			r.last[b.inRun] > r.last[i] {
			return i
		}
	}
	return n
}

const (
	lanes     = 8 // calls of a run that are under way at once
	laneCalls = 4 // for each lane, so that it is worth a goroutine
)

// writeMerged makes the calls of a run of several drafts: those that carry no number at once, then
// the others in their order.
func (r *run) writeMerged(backing Backing, id index.Key) error {
	first := r.stamps[:1:1]
	if err := r.writePlain(backing, id, first); err != nil {
		return err
	}
	for i := range r.calls {
		if c := &r.calls[i]; c.numbers > 0 {
			if err := r.ways[0].write(r, c, backing, id, first); err != nil {
				return err
			}
		}
	}
	return nil
}

// writePlain makes the calls without numbers: on this goroutine, and on others where there are many.
func (r *run) writePlain(backing Backing, id index.Key, first []wire.Stamp) error {
	plain := 0
	for i := range r.calls {
		if r.calls[i].numbers == 0 {
			plain++
		}
	}
	r.next.Store(0)
	if n := min(lanes, plain/laneCalls); n > 1 {
		return r.writeAtOnce(n, backing, id, first)
	}
	if plain > 0 {
		return r.writeLane(0, backing, id, first)
	}
	return nil
}

// writeAtOnce has n goroutines make calls.
func (r *run) writeAtOnce(n int, backing Backing, id index.Key, first []wire.Stamp) error {
	var failed [lanes]error
	var wg sync.WaitGroup
	for lane := range n {
		wg.Go(func() { failed[lane] = r.writeLane(lane, backing, id, first) })
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// writeLane makes one call without a number after the other, as long as there are some.
func (r *run) writeLane(lane int, backing Backing, id index.Key, first []wire.Stamp) error {
	for {
		i := int(r.next.Add(1)) - 1
		if i >= len(r.calls) {
			return nil
		}
		c := &r.calls[i]
		if c.numbers > 0 {
			continue
		}
		if err := r.ways[lane].write(r, c, backing, id, first); err != nil {
			return err
		}
	}
}

// exchange is what a call to the backing is given.
type exchange struct {
	bufs   [][]byte
	sums   []uint32
	stamps []wire.Stamp
}

// write makes a call of a run.
func (x *exchange) write(r *run, c *call, backing Backing, id index.Key,
	first []wire.Stamp) error {
	x.bufs, x.sums, x.stamps = x.bufs[:0], x.sums[:0], append(x.stamps[:0], first...)
	summed := true
	for i := c.first; i < c.end; i++ {
		p := &r.parts[i]
		summed = x.add(r.drafts[p.draft], p) && summed
	}
	sums := x.sums
	if !summed {
		sums = nil
	}
	err := backing.WriteSums(context.Background(), id, x.bufs, r.parts[c.first].off, sums, x.stamps,
		stripe.Volatile)
	clear(x.bufs) // no memory of a draft that has ended is kept
	return err
}

// add puts a part into the call; it tells whether its sums are known.
func (x *exchange) add(d *Draft, p *part) (summed bool) {
	from := 0
	if p.piece > 0 {
		from = d.cuts[p.piece-1]
	}
	x.bufs = append(x.bufs, d.bytes[from:d.cuts[p.piece]]...)
	if p.piece == len(d.pieces)-1 && stripe.Numbered(d.stamp) {
		x.stamps = append(x.stamps, d.stamp)
	}
	sums := d.sumsOf(p.piece)
	x.sums = append(x.sums, sums...)
	return sums != nil
}
