package writeback

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
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
// the writes of a run do not overlap, and because of four rules:
//
//   - A write's number goes with its last piece, as it does alone, and its pieces are in ascending
//     order; calls with numbers are made when all others are over, in their order: when the number
//     is noted all of the write is there. A write whose pieces are in another order goes alone.
//   - Of two writes of one slot the later one's number does not go before the earlier one's.
//   - Members of a backing take their parts of a call in any order, and each notes the numbers. So
//     a call that has pieces of lists does not go over the end of a member.
//   - What a crash cuts off in the middle is sent again as a whole, over the same bytes.
//
// Programs of several processes are not in step: what fills a gap may be pending behind all that
// another process has written. So a run that is not one stretch is large: it may have half of what
// may be pending. Its pieces are sorted under the lock: some ten milliseconds for piecesMax. Where
// writes overlap, most of what was sorted has to wait: the next run looks at twice as much as could
// be written, so that what is sorted stays in proportion to what is written.
//
// Pieces of a few bytes with gaps of a few bytes, as a column of a matrix has them, share blocks of
// the store, which would read and write each block once for each piece. So a call may have small
// gaps: what is in them is read before, and written again. Nobody else can change it meanwhile,
// because whoever goes to the backing settles first what is pending in his units, and a gap is
// smaller than a unit.

const (
	piecesMax = 128 << 10 // of all writes of a run
	keptMax   = 8 << 10   // pieces that a run that is not used keeps memory for
	piecesMin = 64        // that a run looks at, however few the last one could write
	looksMax  = 2         // at a run, before it is halved each time
	gapMax    = memory.BlockBytes
	smallMax  = 64 << 10  // a larger piece is worth a call of its own
	sieveMax  = 256 << 10 // bytes of a call with gaps, which has them in memory once more
)

// part is a piece of a draft in a run.
type part struct {
	off, end     int64
	draft, piece int32 // which, in the run and in the draft
}

// call is one to the backing: parts of a run that meet, or nearly.
type call struct {
	first, end int // in run.parts
	numbers    int // of requests that end in it
	gaps       bool
	lists      bool // a piece of a list is among them
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
	bytes, pieces, stretch, most := int64(0), 0, true, q.most
	if most == 0 {
		most = piecesMax
	}
	for d := q.drafts.First(); d != nil; d = d.inQueue.Next() {
		if n := len(r.drafts); n > 0 {
			b := d.before
			stretch = stretch && r.drafts[n-1].meets(d)
			room := mergeMax
			if stretch {
				room = runMax
			}
			if bytes+d.size > room || pieces+len(d.pieces) > most ||
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
	if n == 1 && !r.drafts[0].rising() {
		r.calls = r.calls[:0]
		return n
	}
	for looks := 1; ; looks++ {
		r.sort(n)
		cut := r.overlap(n)
		if cut == n {
			cut = r.divide(n)
		}
		if cut == n {
			return n
		}
		if looks > looksMax { // one look may find no more than the last of many that overlap
			cut = min(cut, n/2)
		}
		n = cut
	}
}

// learn tells the queue at how many pieces its next run looks: twice as many as this one could
// write of those that it has collected.
func (r *run) learn(q *queue, n int) {
	if n < len(r.drafts) {
		q.most = max(2*len(r.parts), piecesMin)
	} else if q.most > 0 {
		q.most = min(2*q.most, piecesMax)
	}
}

// sort lists the pieces of the first n drafts by offset. Those of each draft are sorted already.
func (r *run) sort(n int) {
	r.parts, r.ends = r.parts[:0], r.ends[:0]
	for i, d := range r.drafts[:n] {
		for k, p := range d.pieces {
			r.parts = append(r.parts, part{p.Off, p.End(), int32(i), int32(k)})
		}
		r.ends = append(r.ends, len(r.parts))
	}
	for len(r.ends) > 1 {
		r.spare = r.spare[:0]
		begin, ends := 0, r.ends
		r.ends = r.ends[:0]
		for k := 0; k < len(ends); k += 2 {
			middle, end := ends[k], ends[min(k+1, len(ends)-1)]
			r.spare = mergeParts(r.spare, r.parts[begin:middle], r.parts[middle:end])
			begin = end
			r.ends = append(r.ends, end)
		}
		r.parts, r.spare = r.spare, r.parts
	}
}

// mergeParts appends two sorted lists to one.
func mergeParts(to, a, b []part) []part {
	for len(a) > 0 && len(b) > 0 {
		if b[0].off < a[0].off {
			to, b = append(to, b[0]), b[1:]
		} else {
			to, a = append(to, a[0]), a[1:]
		}
	}
	return append(append(to, a...), b...)
}

// overlap is the first draft that overlaps one before it, as far as one look shows; n if there is
// none.
func (r *run) overlap(n int) int {
	cut, far := n, 0 // the part that reaches farthest
	for i := 1; i < len(r.parts); i++ {
		x, y := &r.parts[far], &r.parts[i]
		if y.off < x.end {
			cut = min(cut, int(max(x.draft, y.draft)))
		}
		if y.end > x.end {
			far = i
		}
	}
	return cut
}

// divide cuts the parts into calls, and returns the first draft whose number would go before that
// of an earlier write of its slot; n if there is none.
func (r *run) divide(n int) int {
	r.calls, r.last = append(r.calls[:0], call{}), append(r.last[:0], make([]int, n)...)
	begin := 0
	for i := range r.parts {
		p, c := &r.parts[i], &r.calls[len(r.calls)-1]
		list := len(r.drafts[p.draft].pieces) > 1
		if i > begin && (!r.joins(c, p) || (c.lists || list) && !r.together(c, p)) {
			r.calls, begin = append(r.calls, call{first: i}), i
			c = &r.calls[len(r.calls)-1]
		}
		c.gaps = c.gaps || i > begin && p.off > r.parts[i-1].end
		c.end, c.lists = i+1, c.lists || list
		if r.drafts[p.draft].endsWith(p) {
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

// joins tells whether a part goes into a call, behind those that it has.
func (r *run) joins(c *call, p *part) bool {
	last := &r.parts[c.end-1]
	gap, length := p.off-last.end, p.end-r.parts[c.first].off
	most := int64(runMax)
	if c.gaps || gap > 0 {
		most = sieveMax
	}
	return gap < gapMax && length <= most && c.numbers < stripe.StampsMax &&
		(gap == 0 || p.end-p.off < smallMax && last.end-last.off < smallMax)
}

// together tells whether one member of the backing has all of a call, and of a part behind it.
func (r *run) together(c *call, p *part) bool {
	if r.placer == nil {
		return true
	}
	begin := r.parts[c.first].off
	_, n := r.placer.Place(r.drafts[0].id(), begin)
	return p.end-begin <= n
}

// endsWith tells whether a part is the draft's last one, with which its number goes.
func (d *Draft) endsWith(p *part) bool {
	return int(p.piece) == len(d.pieces)-1 && stripe.Numbered(d.stamp)
}

const (
	lanes     = 8 // calls of a run that are under way at once
	laneCalls = 4 // for each lane, so that it is worth a goroutine
)

// writeMerged makes the calls of a run: those that carry no number at once, then
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

// writePlain makes the calls without numbers, on several goroutines where there are many.
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
			r.next.Store(int64(len(r.calls))) // all will be sent again
			return err
		}
	}
}

// exchange is what a call to the backing is given.
type exchange struct {
	bufs   [][]byte
	sums   []uint32
	stamps []wire.Stamp
	room   *[]byte   // to read into, during a call with gaps
	old    []byte    // what is there, from the first part of a call with gaps on
	one    [1][]byte // that is read
}

// rooms are memory to read into.
var rooms = sync.Pool{New: func() any {
	b := make([]byte, sieveMax+2*memory.BlockBytes)
	return &b
}}

// write makes a call of a run.
func (x *exchange) write(r *run, c *call, backing Backing, id index.Key,
	first []wire.Stamp) error {
	defer x.leaveRoom()
	if c.gaps && x.read(r, c, backing, id) != nil {
		return x.writeEach(r, c, backing, id, first)
	}
	return x.writeParts(r, c, backing, id, first)
}

func (x *exchange) leaveRoom() {
	if x.room != nil {
		rooms.Put(x.room)
	}
	x.room, x.old, x.one[0] = nil, nil, nil
}

// writeEach makes a call of each part, in the order of the queue, as numbers must go: what is in
// the gaps cannot be read, and the backing may know better what to do.
func (x *exchange) writeEach(r *run, c *call, backing Backing, id index.Key,
	first []wire.Stamp) error {
	slices.SortFunc(r.parts[c.first:c.end], func(a, b part) int {
		return cmp.Or(cmp.Compare(a.draft, b.draft), cmp.Compare(a.piece, b.piece))
	})
	for i := c.first; i < c.end; i++ {
		if err := x.writeParts(r, &call{first: i, end: i + 1}, backing, id, first); err != nil {
			return err
		}
	}
	return nil
}

// writeParts writes the parts, and what was read of the gaps between them.
func (x *exchange) writeParts(r *run, c *call, backing Backing, id index.Key,
	first []wire.Stamp) error {
	x.bufs, x.sums, x.stamps = x.bufs[:0], x.sums[:0], append(x.stamps[:0], first...)
	begin, summed := r.parts[c.first].off, !c.gaps
	for i := c.first; i < c.end; i++ {
		p := &r.parts[i]
		if i > c.first && p.off > r.parts[i-1].end {
			x.bufs = append(x.bufs, x.old[r.parts[i-1].end-begin:p.off-begin])
		}
		summed = x.add(r.drafts[p.draft], p) && summed
	}
	sums := x.sums
	if !summed {
		sums = nil
	}
	err := backing.WriteSums(context.Background(), id, x.bufs, begin, sums, x.stamps, stripe.Volatile)
	clear(x.bufs) // no memory of a draft that has ended is kept
	return err
}

// read reads what a call will write over, for what is in its gaps: whole blocks, as sums are of
// such.
func (x *exchange) read(r *run, c *call, backing Backing, id index.Key) error {
	from := r.parts[c.first].off &^ (memory.BlockBytes - 1)
	skip := r.parts[c.first].off - from
	n := (r.parts[c.end-1].end - from + memory.BlockBytes - 1) &^ (memory.BlockBytes - 1)
	x.room = rooms.Get().(*[]byte)
	x.one[0], x.old = (*x.room)[:n], (*x.room)[skip:n]
	x.sums = slices.Grow(x.sums[:0], int(n/memory.BlockBytes))[:n/memory.BlockBytes]
	return backing.ReadSums(context.Background(), id, x.one[:], from, x.sums)
}

// add puts a part into the call; it tells whether its sums are known.
func (x *exchange) add(d *Draft, p *part) (summed bool) {
	from := 0
	if p.piece > 0 {
		from = d.cuts[p.piece-1]
	}
	x.bufs = append(x.bufs, d.bytes[from:d.cuts[p.piece]]...)
	if d.endsWith(p) {
		x.stamps = append(x.stamps, d.stamp)
	}
	sums := d.sumsOf(int(p.piece))
	x.sums = append(x.sums, sums...)
	return sums != nil
}
