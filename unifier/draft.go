package unifier

import (
	"context"
	"math"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// Draft is memory for one write that nobody else can see. It ends with Publish or Abort. A
// draft is used by one goroutine at a time.
//
// Whole units of the pieces get buffers of their own, which Publish exchanges for the cached
// ones without a copy. Parts of units are packed behind each other, since they are merged by
// copying in any case: so a thousand small pieces do not take a thousand units.
type Draft struct {
	c      *Cache
	pieces []seg.Piece
	parts  []part
	sges   []fabric.Sge // of the parts
	bufs   []*mem.Buf   // all that the draft holds; nil where the cache has taken it over
	bytes  [][]byte     // scratch of Publish
	claim  claim
	held   int64 // units reserved
	live   bool
	next   *Draft // in Cache.idle
	id     Key
	ready  chan struct{}
	err    error
}

// part is what the draft holds of one unit of the object, in one buffer.
type part struct {
	unit   int64
	lo, hi int64 // in the unit
	buf    int   // in Draft.bufs
	nth    int   // in Draft.sges: the order of the list
}

func (p part) whole(unit int64) bool { return p.hi-p.lo == unit }

// Draft makes a draft for an access to one object. Its pieces need be neither sorted nor
// disjoint: later ones win. The memory for all of them is reserved in one step, waiting behind
// earlier drafts; what needs more than the drafts' share is refused with errs.TooBig.
func (c *Cache) Draft(ctx context.Context, id Key, a seg.Access, h Hint) (*Draft, error) {
	d, err := c.newDraft(id, a)
	if err != nil {
		return nil, err
	}
	if err := d.furnish(ctx); err != nil {
		d.end()
		return nil, err
	}
	return d, nil
}

// PostDraft starts Draft and does not wait: Check, Wait or ready tell when the memory is there.
func (c *Cache) PostDraft(id Key, a seg.Access, h Hint, ready func(*Draft)) (*Draft, error) {
	d, err := c.newDraft(id, a)
	if err != nil {
		return nil, err
	}
	d.ready = make(chan struct{})
	go func() {
		d.err = d.furnish(context.Background())
		close(d.ready)
		if ready != nil {
			ready(d)
		}
	}()
	return d, nil
}

// Check tells whether the draft's memory is there, or why it never will be.
func (d *Draft) Check() (done bool, err error) {
	if d.ready == nil {
		return true, nil
	}
	select {
	case <-d.ready:
		return true, d.err
	default:
		return false, nil
	}
}

// Wait returns when the draft's memory is there, or why it never will be.
func (d *Draft) Wait(ctx context.Context) error {
	if d.ready == nil {
		return nil
	}
	select {
	case <-d.ready:
		return d.err
	case <-ctx.Done():
		return errs.Wrap("unifier.Wait", "", ctx.Err())
	}
}

// Verify sums what has arrived and compares with the sender's CRC-32C of each chunk bytes of the
// draft's stream; the last may be shorter. errs.Corrupt when they differ.
func (d *Draft) Verify(sums []uint32, chunk int64) error {
	have := sumSges(nil, d.sges, chunk)
	if !slices.Equal(have, sums) {
		return errs.Newf(errs.Corrupt, "unifier.Verify", d.id.String(), "the sums differ")
	}
	return nil
}

// furnish gets the draft its memory.
func (d *Draft) furnish(ctx context.Context) error {
	const op = "unifier.Draft"
	c := d.c
	whole, loose := int64(0), int64(0)
	for _, p := range d.pieces {
		n := wholeUnits(p, c.unit)
		whole += n
		loose += p.Len - n*c.unit
	}
	count := whole + (loose+c.unit-1)/c.unit
	if count > c.drafts.Total() {
		return errs.Newf(errs.TooBig, op, "",
			"the pieces need %d units, drafts have %d", count, c.drafts.Total())
	}
	if err := c.drafts.Acquire(ctx, count); err != nil {
		return errs.Wrap(op, "", err)
	}
	d.held = count
	for range count {
		b, err := c.take(ctx)
		if err != nil {
			return errs.Wrap(op, "", err)
		}
		d.bufs = append(d.bufs, b)
	}
	d.lay(int(whole))
	return nil
}

// wholeUnits tells how many units lie inside the piece.
func wholeUnits(p seg.Piece, unit int64) int64 {
	return max(p.End()/unit-(p.Off+unit-1)/unit, 0)
}

func (c *Cache) newDraft(id Key, a seg.Access) (*Draft, error) {
	if err := a.Validate(math.MaxInt64, stripe.MaxObjectBytes); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errs.New(errs.Closed, "unifier.Draft", "", nil)
	}
	d := c.idle
	if d == nil {
		d = &Draft{c: c}
	} else {
		c.idle = d.next
	}
	d.live, d.id, d.next = true, id, nil
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return d, nil
		}
		d.pieces = append(d.pieces, p)
	}
}

// lay gives every part of every piece its memory: whole units the first buffers, the rest the
// packed ones behind.
func (d *Draft) lay(packed int) {
	unit := d.c.unit
	nextWhole, at := 0, int64(0)
	for _, p := range d.pieces {
		for off := p.Off; off < p.End(); {
			base := off / unit
			x := part{unit: base, lo: off - base*unit, hi: min(p.End()-base*unit, unit)}
			if x.whole(unit) {
				x.buf = nextWhole
				nextWhole++
				d.add(x, 0)
				off += unit
				continue
			}
			x.hi = min(x.hi, x.lo+unit-at) // what the packed buffer has room for
			x.buf = packed
			d.add(x, at)
			off += x.hi - x.lo
			if at += x.hi - x.lo; at == unit {
				packed, at = packed+1, 0
			}
		}
	}
}

func (d *Draft) add(x part, at int64) {
	x.nth = len(d.parts)
	d.parts = append(d.parts, x)
	d.sges = append(d.sges, d.bufs[x.buf].Sge(int(at), int(x.hi-x.lo)))
}

// Sges are the pieces of memory to receive into: exactly the bytes of the draft's pieces, in
// order. The slice is valid until Publish or Abort.
func (d *Draft) Sges() []fabric.Sge { return d.sges }

// Abort ends a draft without a trace.
func (d *Draft) Abort() {
	invariant.Check(d.live, "unifier.Draft ended twice")
	d.end()
}

// end gives back what the draft still holds, and the draft itself.
func (d *Draft) end() {
	for _, b := range d.bufs {
		if b != nil {
			b.Return()
		}
	}
	c, held := d.c, d.held
	clear(d.bufs)
	clear(d.sges)
	clear(d.bytes[:cap(d.bytes)])
	c.mu.Lock()
	*d = Draft{
		c: c, pieces: d.pieces[:0], parts: d.parts[:0], sges: d.sges[:0], bufs: d.bufs[:0],
		bytes: d.bytes[:0], claim: claim{spans: d.claim.spans[:0]}, next: c.idle,
	}
	c.idle = d
	c.mu.Unlock()
	c.drafts.Release(held)
}
