package unifier

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
)

// Draft is memory for one write that nobody else can see. It ends with Publish or Abort. A
// draft is used by one goroutine at a time.
//
// Whole units of the pieces get blocks of their own, which Publish exchanges for the cached
// ones without a copy. Parts of units are packed behind each other, since they are merged by
// copying in any case: so a thousand small pieces do not take a thousand units.
//
// Where writes are written back later, the draft is also what waits for that: see pending.go.
type Draft struct {
	c        *Cache
	obj      *object
	hint     Hint
	pieces   []seg.Piece
	parts    []part
	sges     []fabric.Sge
	taken    []taken  // by block: whether it went to a unit
	sums     []uint32 // of the blocks of those parts that consist of blocks
	chunks   []uint32 // of what has arrived, as the sender sums it
	bytes    [][]byte // what the backing gets, piece by piece
	cuts     []int    // where in bytes each piece ends
	sumAt    []int    // where in sums each piece begins; -1: it does not consist of blocks
	one      [1]wire.Stamp
	claim    claim
	need     need        // its blocks
	spare    need        // for a fresh version of a unit, and to wait for readers
	patience *time.Timer // with readers; nil until it is needed
	back     bool        // it will be pending
	through  bool        // it will not be
	again    bool        // it was acknowledged once, see since.go
	size     int64
	held     int64 // of the drafts' share
	summed   bool
	live     bool
	posted   posted
	next     *Draft // in Cache.spareDrafts

	stamp            wire.Stamp
	order            uint64    // among all pending writes
	since            time.Time // when it was published
	before           *Draft    // pending, with an earlier number of the same slot
	beforeOrder      uint64    // its order: drafts are used again
	behind, ahead    *Draft    // among the object's pending writes
	flying           bool      // it is being written
	prevAll, nextAll *Draft    // in Cache.pending
}

// taken tells that a block is a unit's by now, which the draft holds while it is pending.
type taken struct {
	gone bool
	held *unit
}

// part is what the draft holds of one unit of the object, in one block.
type part struct {
	unit   int64
	lo, hi int64 // in the unit
	buf    int   // in Draft.need.got
	at     int64 // in the block
	sum    int   // of its first block in Draft.sums; -1: it does not consist of blocks
}

func (p *part) whole(unit int64) bool { return p.hi-p.lo == unit }

func (d *Draft) mem(p *part) []byte { return d.need.got[p.buf].bytes(int(p.at), int(p.hi-p.lo)) }

// Draft makes a draft for an access to one object. Its pieces need be neither sorted nor
// disjoint: later ones win. The memory for all of them is had in one step, waiting behind others;
// what needs more than the drafts' share is refused with errs.TooBig.
func (c *Cache) Draft(ctx context.Context, id Key, a seg.Access, h Hint) (*Draft, error) {
	d, err := c.newDraft(id, a, h)
	if err != nil {
		return nil, err
	}
	if err := d.furnish(ctx); err != nil {
		d.end()
		return nil, err
	}
	d.posted.finish(nil)
	return d, nil
}

// PostDraft is Draft that does not wait. ready, if there is one, is called once, on another
// goroutine, when the memory is there or cannot be had; it must not wait long. Otherwise Check and
// Wait tell. A draft that was posted ends with Publish or Abort like any other, with Abort also
// when it has failed; after an Abort before that ready is not called.
func (c *Cache) PostDraft(id Key, a seg.Access, h Hint, ready func(*Draft)) (*Draft, error) {
	d, err := c.newDraft(id, a, h)
	if err != nil {
		return nil, err
	}
	d.posted.start()
	if ready == nil && d.tryFurnish() {
		d.posted.finish(nil)
		return d, nil
	}
	c.mu.Lock()
	full := c.jobs.len() >= postedMax
	if !full {
		c.postLocked(&c.jobs, job{draft: d, drafted: ready})
	}
	c.mu.Unlock()
	if full {
		d.end()
		return nil, errs.Newf(errs.Busy, "unifier.PostDraft", id.String(), "%d posted", postedMax)
	}
	return d, nil
}

// serveDraft gets a posted draft its memory, on a worker.
func (c *Cache) serveDraft(d *Draft, ready func(*Draft)) {
	err := d.furnish(c.life)
	c.mu.Lock()
	left := d.posted.left
	if !left {
		d.posted.finish(err)
	}
	c.mu.Unlock()
	if left {
		d.end()
	} else if ready != nil {
		ready(d)
	}
}

// Check tells whether the draft's memory is there, or why it never will be.
func (d *Draft) Check() (done bool, err error) { return d.posted.check() }

// Wait returns when the draft's memory is there, or tells why it never will be, or that ctx has
// ended.
func (d *Draft) Wait(ctx context.Context) error { return d.posted.wait(ctx) }

// Sges are the pieces of memory to receive into: exactly the bytes of the draft's pieces, in
// order. The slice is valid until Publish or Abort.
func (d *Draft) Sges() []fabric.Sge { return d.sges }

// Abort ends a draft without a trace.
func (d *Draft) Abort() {
	invariant.Check(d.live, "unifier.Draft ended twice")
	if d.posted.async && !d.posted.done.Load() {
		d.c.mu.Lock()
		d.posted.left = !d.posted.done.Load()
		left := d.posted.left
		d.c.mu.Unlock()
		if left {
			return
		}
	}
	d.end()
}

// Verify sums what has arrived and compares with the sender's CRC-32C of each chunk bytes of the
// draft's stream; the last may be shorter. chunk is a multiple of 4 KiB. errs.Corrupt when they
// differ. The sums of blocks are kept, so that Publish and the backing need not sum again; a draft
// that is not verified is summed by Publish.
func (d *Draft) Verify(sums []uint32, chunk int64) error {
	s := newStream(d.chunks[:0], chunk)
	d.sum(&s)
	d.chunks = s.finish()
	if !slices.Equal(d.chunks, sums) {
		return errs.Newf(errs.Corrupt, "unifier.Verify", d.obj.id.String(),
			"%d bytes have other sums than the sender's", d.size)
	}
	return nil
}

// sum sums the blocks, and the stream if there is one. It is called while parts are in the order of
// the stream.
func (d *Draft) sum(s *stream) {
	d.summed = true
	for i := range d.parts {
		p := &d.parts[i]
		b := d.mem(p)
		if p.sum < 0 {
			if s != nil {
				s.bytes(b)
			}
			continue
		}
		for k := 0; len(b) > 0; k++ {
			sum := crc32c.Sum(b[:blockBytes])
			d.sums[p.sum+k] = sum
			switch {
			case s == nil:
			case s.fits():
				s.block(sum)
			default:
				s.bytes(b[:blockBytes])
			}
			b = b[blockBytes:]
		}
	}
}

func (c *Cache) newDraft(id Key, a seg.Access, h Hint) (*Draft, error) {
	if err := checkAccess("unifier.Draft", id, a, h); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errs.New(errs.Closed, "unifier.Draft", id.String(), nil)
	}
	d := c.spareDrafts
	if d == nil {
		d = &Draft{c: c}
	} else {
		c.spareDrafts = d.next
	}
	d.live, d.next, d.hint = true, nil, h
	d.obj = c.objectLocked(id, h)
	d.obj.busy++
	c.out++
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return d, nil
		}
		d.pieces = seg.Join(d.pieces, p)
		d.size += p.Len
	}
}

// plan finds out which blocks the pieces need, for whole units and for parts of units, and returns
// their bytes. Few parts are packed into the smallest block that holds them.
func (d *Draft) plan() int64 {
	unit, whole, loose := d.obj.unit(), int64(0), int64(0)
	for _, p := range d.pieces {
		n := max(p.End()>>d.obj.shift-(p.Off+unit-1)>>d.obj.shift, 0)
		whole += n
		loose += p.Len - n*unit
	}
	n := &d.need
	n.shift, n.count, n.small = d.obj.shift, int(whole), d.obj.shift
	for n.small > blockShift && loose <= 1<<(n.small-1) {
		n.small--
	}
	n.more = int((loose + 1<<n.small - 1) >> n.small)
	return whole*unit + int64(n.more)<<n.small
}

// furnish gets the draft its memory.
func (d *Draft) furnish(ctx context.Context) error {
	const op = "unifier.Draft"
	c := d.c
	bytes := d.plan()
	if bytes > c.drafts.Total() {
		return errs.Newf(errs.TooBig, op, d.obj.id.String(),
			"the pieces need %d bytes, drafts have %d", bytes, c.drafts.Total())
	}
	if err := c.drafts.Acquire(ctx, bytes); err != nil {
		return errs.Wrap(op, d.obj.id.String(), err)
	}
	d.held = bytes
	c.mu.Lock()
	err := c.obtainLocked(ctx, &d.need)
	c.mu.Unlock()
	if err != nil {
		return errs.Wrap(op, d.obj.id.String(), err)
	}
	d.lay()
	return nil
}

// tryFurnish is furnish that does not wait.
func (d *Draft) tryFurnish() bool {
	c := d.c
	bytes := d.plan()
	if bytes > c.drafts.Total() || !c.drafts.TryAcquire(bytes) {
		return false
	}
	d.held = bytes
	c.mu.Lock()
	ok := c.tryObtainLocked(&d.need)
	c.mu.Unlock()
	if !ok {
		d.held = 0
		c.drafts.Release(bytes)
		return false
	}
	d.lay()
	return true
}

// lay gives every part of every piece its memory: whole units the first blocks, the rest the
// packed ones behind.
func (d *Draft) lay() {
	unit, room := d.obj.unit(), int64(1)<<d.need.small
	nextWhole, packed, at := 0, d.need.count, int64(0)
	var g gather
	for _, p := range d.pieces {
		summed := len(d.sums)
		for off := p.Off; off < p.End(); {
			base := off >> d.obj.shift
			x := part{unit: base, lo: off - base*unit, hi: min(p.End()-base*unit, unit)}
			if x.whole(unit) {
				x.buf = nextWhole
				nextWhole++
			} else {
				x.hi = min(x.hi, x.lo+room-at) // what the packed block has room for
				x.buf, x.at = packed, at
				if at += x.hi - x.lo; at == room {
					packed, at = packed+1, 0
				}
			}
			d.add(x)
			d.sges = g.sge(d.sges, d.need.got[x.buf], int(x.at), int(x.hi-x.lo))
			off += x.hi - x.lo
		}
		if int64(len(d.sums)-summed)*blockBytes != p.Len {
			summed = -1
		}
		d.sumAt = append(d.sumAt, summed)
	}
	d.taken = slices.Grow(d.taken[:0], len(d.need.got))[:len(d.need.got)]
}

// add appends a part and makes room for its sums.
func (d *Draft) add(x part) {
	x.sum = -1
	if n := x.hi - x.lo; (x.lo|n)%blockBytes == 0 {
		x.sum = len(d.sums)
		blocks := int(n / blockBytes)
		d.sums = slices.Grow(d.sums, blocks)[:x.sum+blocks]
	}
	d.parts = append(d.parts, x)
}

// end gives back what the draft still holds, and the draft itself.
func (d *Draft) end() {
	c, held := d.c, d.held
	c.mu.Lock()
	d.endLocked()
	c.mu.Unlock()
	if held > 0 {
		c.drafts.Release(held)
	}
}

// endLocked leaves the drafts' share to the caller.
func (d *Draft) endLocked() {
	c := d.c
	for i, b := range d.need.got {
		if i >= len(d.taken) || !d.taken[i].gone {
			c.memory.give(b)
		} else if u := d.taken[i].held; u != nil {
			c.unpinLocked(u)
		}
	}
	clear(d.taken)
	clear(d.sges)
	clear(d.bytes)
	d.claim.reset()
	o := d.obj
	o.busy--
	c.tidyLocked(o)
	*d = Draft{
		c: c, pieces: d.pieces[:0], parts: d.parts[:0], sges: d.sges[:0], taken: d.taken[:0],
		sums: d.sums[:0], chunks: d.chunks[:0], bytes: d.bytes[:0], cuts: d.cuts[:0],
		sumAt: d.sumAt[:0],
		claim: d.claim, posted: posted{ready: d.posted.ready}, patience: d.patience,
		need:  need{got: d.need.got[:0], ready: d.need.ready},
		spare: need{got: d.spare.got[:0], ready: d.spare.ready}, next: c.spareDrafts,
	}
	c.spareDrafts = d
	c.out--
	c.feedLocked()
}
