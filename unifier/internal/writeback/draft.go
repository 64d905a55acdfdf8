package writeback

import (
	"context"
	"math"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

func (d *Draft) id() index.Key { return d.pub.Object.ID() }

// Draft is unifier.Cache.Draft.
func (w *Writer) Draft(ctx context.Context, id index.Key, a seg.Access, h index.Hint) (
	*Draft, error) {
	const op = "unifier.Draft"
	if err := index.CheckAccess(op, id, a, h); err != nil {
		return nil, err
	}
	x := w.index
	x.Lock()
	if err := x.Closed(op, id); err != nil {
		x.Unlock()
		return nil, err
	}
	d := w.freeDrafts.Get()
	d.w, d.live = w, true
	d.pub.Object, d.pub.Policy = x.Open(id, h), h.Policy
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			break
		}
		d.pieces = seg.Join(d.pieces, p)
		d.size += p.Len
	}
	bytes := d.plan()
	ready := d.tryAllocate(bytes)
	x.Unlock()
	if !ready {
		if err := d.allocate(ctx, bytes); err != nil {
			d.end()
			return nil, errs.Wrap(op, id.String(), err)
		}
	}
	d.lay()
	return d, nil
}

// plan finds out which blocks the pieces need, for whole units and for parts of units, and returns
// their bytes. Few parts are packed into the smallest block that holds them.
func (d *Draft) plan() int64 {
	shift := d.pub.Object.Shift()
	unit, whole, loose := int64(1)<<shift, int64(0), int64(0)
	for _, p := range d.pieces {
		n := max(p.End()>>shift-(p.Off+unit-1)>>shift, 0)
		whole += n
		loose += p.Len - n*unit
	}
	r := &d.pub.Blocks
	r.Shift, r.Count, r.Small = shift, int(whole), shift
	for r.Small > memory.BlockShift && loose <= 1<<(r.Small-1) {
		r.Small--
	}
	r.More = int((loose + 1<<r.Small - 1) >> r.Small)
	return whole*unit + int64(r.More)<<r.Small
}

// tryAllocate gets the draft its memory if nobody has to be waited for. The index's lock is held.
func (d *Draft) tryAllocate(bytes int64) bool {
	if bytes > d.w.drafts.Total() || !d.w.drafts.TryAcquire(bytes) {
		return false
	}
	d.held = bytes
	return d.w.index.Memory.TryAllocate(&d.pub.Blocks, false)
}

// allocate gets the draft its memory, after tryAllocate could not.
func (d *Draft) allocate(ctx context.Context, bytes int64) error {
	w := d.w
	if bytes > w.drafts.Total() {
		return errs.Newf(errs.TooBig, "", "", "the pieces need %d bytes, drafts have %d", bytes,
			w.drafts.Total())
	}
	if d.held == 0 {
		if err := w.drafts.Acquire(ctx, bytes); err != nil {
			return err
		}
		d.held = bytes
	}
	w.index.Lock()
	defer w.index.Unlock()
	return w.index.Memory.Allocate(ctx, &d.pub.Blocks)
}

// lay gives every part of every piece its memory: whole units the first blocks, the rest the
// packed ones behind.
func (d *Draft) lay() {
	blocks, shift := &d.pub.Blocks, d.pub.Object.Shift()
	unit, room := int64(1)<<shift, int64(1)<<blocks.Small
	nextWhole, packed, at := 0, blocks.Count, int64(0)
	var g memory.Gather
	for _, p := range d.pieces {
		summed := len(d.pub.Sums)
		for off := p.Off; off < p.End(); {
			base := off >> shift
			x := index.Part{Unit: base, Lo: off - base*unit, Hi: min(p.End()-base*unit, unit)}
			if x.Hi-x.Lo == unit {
				x.Block = nextWhole
				nextWhole++
			} else {
				x.Hi = min(x.Hi, x.Lo+room-at) // what the packed block has room for
				x.Block, x.At = packed, at
				if at += x.Hi - x.Lo; at == room {
					packed, at = packed+1, 0
				}
			}
			d.add(x)
			d.sges = g.Sge(d.sges, blocks.Got[x.Block], int(x.At), int(x.Hi-x.Lo))
			off += x.Hi - x.Lo
		}
		if int64(len(d.pub.Sums)-summed)*memory.BlockBytes != p.Len {
			summed = -1
		}
		d.sumAt = append(d.sumAt, summed)
	}
}

// add appends a part and makes room for its sums.
func (d *Draft) add(x index.Part) {
	x.Sum = -1
	if n := x.Hi - x.Lo; (x.Lo|n)%memory.BlockBytes == 0 {
		x.Sum = len(d.pub.Sums)
		blocks := int(n / memory.BlockBytes)
		d.pub.Sums = slices.Grow(d.pub.Sums, blocks)[:x.Sum+blocks]
	}
	d.pub.Parts = append(d.pub.Parts, x)
}

// Sges are the pieces of memory to receive into: exactly the bytes of the draft's pieces, in
// order. The slice is valid until Publish or Abort.
func (d *Draft) Sges() []fabric.Sge { return d.sges }

// Verify sums what has arrived and compares with the sender's CRC-32C of each chunk bytes of the
// draft's stream; the last may be shorter. chunk is a multiple of 4 KiB. errs.Corrupt when they
// differ. The sums of blocks are kept, so that Publish and the backing need not sum again; a draft
// that is not verified is summed by Publish.
func (d *Draft) Verify(sums []uint32, chunk int64) error {
	s := memory.NewSummer(d.chunks[:0], chunk)
	d.sum(&s)
	d.chunks = s.Finish()
	if !slices.Equal(d.chunks, sums) {
		return errs.Newf(errs.Corrupt, "unifier.Verify", d.id().String(),
			"%d bytes have other sums than the sender's", d.size)
	}
	return nil
}

// sum sums the blocks, and the stream if there is one. It is called while parts are in the order of
// the stream.
func (d *Draft) sum(s *memory.Summer) {
	d.summed = true
	for i := range d.pub.Parts {
		p := &d.pub.Parts[i]
		b := d.pub.Mem(p)
		if p.Sum < 0 {
			if s != nil {
				s.Bytes(b)
			}
			continue
		}
		for k := 0; len(b) > 0; k++ {
			sum := crc32c.Sum(b[:memory.BlockBytes])
			d.pub.Sums[p.Sum+k] = sum
			switch {
			case s == nil:
			case s.Fits():
				s.Sum(sum)
			default:
				s.Bytes(b[:memory.BlockBytes])
			}
			b = b[memory.BlockBytes:]
		}
	}
}

// sumsOf are the sums of a piece; nil when it, or a part of it, does not consist of blocks.
func (d *Draft) sumsOf(nth int) []uint32 {
	at := d.sumAt[nth]
	if at < 0 {
		return nil
	}
	return d.pub.Sums[at : at+int(d.pieces[nth].Len/memory.BlockBytes)]
}

// space is what the write may need of the store at most.
func (d *Draft) space() (sum int64) {
	for _, p := range d.pieces {
		first, end := p.Off/stripe.GrainBytes, (p.End()+stripe.GrainBytes-1)/stripe.GrainBytes
		sum += (end - first) * stripe.GrainBytes
	}
	return sum
}

// Abort ends a draft without a trace.
func (d *Draft) Abort() {
	invariant.Check(d.live, "unifier.Draft ended twice")
	d.end()
}

// end gives back what the draft still holds, and the draft itself.
func (d *Draft) end() {
	w, held := d.w, d.held
	w.index.Lock()
	d.endLocked()
	w.index.Unlock()
	if held > 0 {
		w.drafts.Release(held)
	}
}

// endLocked leaves the share that the draft holds to the caller. The index's lock is held.
func (d *Draft) endLocked() {
	w := d.w
	w.index.EndPublication(&d.pub)
	clear(d.sges)
	clear(d.bytes)
	*d = Draft{pub: d.pub, pieces: d.pieces[:0], sges: d.sges[:0], chunks: d.chunks[:0],
		bytes: d.bytes[:0], cuts: d.cuts[:0], sumAt: d.sumAt[:0]}
	w.freeDrafts.Put(d)
}
