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

// A client that was acknowledged a volatile change before the cache began, or before it lost
// something, sends the change again. By then others may have written to the same bytes, and their
// changes are the later ones: what is sent again (Draft.Again) must not lie over them, least of all
// over durable ones. Three memories tell what is later:
//
//   - The cache remembers which bytes were changed in the present life, that is since it began or
//     has lost something. A draft that comes again takes those bytes over from the backing, and
//     goes through to it with its number, durably if it took anything over: so that it is
//     recognised for good and never comes a third time.
//   - The backing remembers the requests' numbers. What was written before the life ended, over
//     something that was pending, has brought that to the backing first, with its number: so what
//     is not recognised lies below nothing of the life that it was acknowledged in.
//   - The backing remembers in which lives an object was changed (stripe.Keeper). A client may have
//     missed lives. If the object was changed in one of them, what comes again is refused: nobody
//     knows where. Without a number it is refused if the object was changed in the life that it was
//     acknowledged in, too.
//
// What came again counts as a change of the life that it was acknowledged in first: it is in the
// way of what is older, and of nothing else that the same crash has taken.

// since is the bytes that were changed since the cache began, or lost something. Guarded by
// Writer.mu.
type since struct {
	objects map[index.Key]*changed
	lives   map[index.Key]uint64 // before this one, in which the object was changed last; see begin
	count   int                  // of chunks, pieces and lives
	over    bool                 // there were more than sinceMax
}

// sinceMax is how much is remembered, of all objects: at most 10 MiB, if each is a chunk. Small
// changes at random places of 256 GiB fit; what is sent again after more than that is refused.
const sinceMax = 64 << 10

// add remembers a change.
func (s *since) add(id index.Key, p seg.Piece) {
	if s.over || p.Len <= 0 {
		return
	}
	o := s.objects[id]
	if o == nil {
		if s.objects == nil {
			s.objects = map[index.Key]*changed{}
		}
		o = &changed{}
		s.objects[id] = o
	}
	s.count += o.add(p)
	s.limit()
}

func (s *since) limit() {
	if s.count > sinceMax {
		*s = since{over: true}
	}
}

// within appends the parts of p that were changed, ascending and apart from each other.
func (s *since) within(dst []seg.Piece, id index.Key, p seg.Piece) []seg.Piece {
	if o := s.objects[id]; o != nil {
		return o.within(dst, p)
	}
	return dst
}

// Wrote remembers that the range was changed past the cache by a request that is not sent again. It
// is called under Change or Discard.
func (w *Writer) Wrote(id index.Key, off, length int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since.add(id, seg.Piece{Off: off, Len: length})
}

// begin remembers in which life an object was changed last before anything of it came again, which
// may change that. Who asks later gets the same.
func (s *since) begin(id index.Key, life uint64) uint64 {
	if first, ok := s.lives[id]; ok {
		return first
	}
	if s.lives == nil {
		s.lives = map[index.Key]uint64{}
	}
	s.lives[id] = life
	s.count++
	s.limit()
	return life
}

// keeper is a backing that knows of lives.
type keeper interface {
	stripe.Keeper
	stripe.Stater
}

// Newer tells which parts of the range were changed since the cache began, or lost something, and
// so lie over a change that comes again. The stamp is that change's, its Life the one that it was
// acknowledged in. It fails with errs.IO when nobody knows. The caller is inside Change.
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
