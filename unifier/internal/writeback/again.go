package writeback

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
	"github.com/sluice-storage/sluice/wire"
)

// Wrote is unifier.Cache.Wrote.
func (w *Writer) Wrote(id index.Key, off, length int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since.add(id, seg.Piece{Off: off, Len: length})
}

// Newer is unifier.Cache.Newer.
func (w *Writer) Newer(ctx context.Context, id index.Key, off, length int64,
	st wire.Stamp) ([]seg.Piece, error) {
	return w.newer(ctx, id, st, []seg.Piece{{Off: off, Len: length}})
}

// newer is Newer for several ranges. The caller has locked them, and nothing of them is pending.
func (w *Writer) newer(ctx context.Context, id index.Key, st wire.Stamp,
	pieces []seg.Piece) (list []seg.Piece, err error) {
	if w.keeper == nil {
		return nil, forgotten(id)
	}
	info, err := w.keeper.Stat(ctx, id)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.keeper.Life()
	last := info.Lives.Until(now)
	first := w.since.begin(id, last)
	switch {
	case w.since.over:
		return nil, forgotten(id)
	case st.Life == 0 || st.Life > now:
		return nil, errs.Newf(errs.IO, "unifier.Publish", id.String(),
			"sent again to a store that has not acknowledged it")
	case last > st.Life, first >= st.Life && !stripe.Numbered(st):
		return nil, errs.Newf(errs.IO, "unifier.Publish", id.String(),
			"sent again too late: the object was changed since it was acknowledged")
	}
	for _, p := range pieces {
		list = w.since.within(list, id, p)
	}
	return list, nil
}

func forgotten(id index.Key) error {
	return errs.Newf(errs.IO, "unifier.Publish", id.String(),
		"sent again too late: so much was written since that nobody knows if it would lie over that")
}

// takeOver puts the backing's bytes of the ranges into the draft.
func (d *Draft) takeOver(ctx context.Context, newer []seg.Piece) error {
	for _, p := range newer {
		first := p.Off / memory.BlockBytes * memory.BlockBytes
		blocks := (p.End() - first + memory.BlockBytes - 1) / memory.BlockBytes
		buf, sums := make([]byte, blocks*memory.BlockBytes), make([]uint32, blocks)
		if err := d.w.backing.ReadSums(ctx, d.id(), [][]byte{buf}, first, sums); err != nil {
			return err
		}
		d.overwrite(p, buf[p.Off-first:])
	}
	if len(newer) > 0 {
		d.sum(nil)
	}
	return nil
}

// overwrite copies the bytes of a range to wherever the draft has them.
func (d *Draft) overwrite(p seg.Piece, from []byte) {
	unit := d.pub.Object.UnitBytes()
	for i := range d.pub.Parts {
		x := &d.pub.Parts[i]
		at := x.Unit * unit
		lo, hi := max(p.Off, at+x.Lo), min(p.End(), at+x.Hi)
		if lo < hi {
			mem.CopyFor(mem.CopyMerge, d.pub.Mem(x)[lo-at-x.Lo:], from[lo-p.Off:hi-p.Off])
		}
	}
}

// durabilityOf is how durable a draft becomes that takes over some bytes: were its number lost, it
// would come a third time, and nobody would know what was newer.
func durabilityOf(dur stripe.Durability, newer []seg.Piece) stripe.Durability {
	if len(newer) > 0 && dur == stripe.Volatile {
		return stripe.Durable
	}
	return dur
}
