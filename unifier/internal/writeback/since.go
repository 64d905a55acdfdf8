package writeback

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
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

// chunkBytes is the part of an object whose small changes are remembered together.
const (
	chunkBlocks = 1024
	chunkBytes  = chunkBlocks * memory.BlockBytes
)

// changed is which bytes of an object were changed, exactly, so that adding one costs little
// however many there are: large ranges as a list, whole blocks as bits, and what is left, parts of
// blocks, as a list for each chunk.
type changed struct {
	large  []seg.Piece // of at least chunkBytes; ascending, apart from each other
	chunks map[int64]*changedChunk
}

type changedChunk struct {
	blocks [chunkBlocks / 64]uint64
	parts  []seg.Piece // ascending, apart from each other
}

// add takes in a range, and returns how many more pieces and chunks there are.
func (o *changed) add(p seg.Piece) (more int) {
	if p.Len >= chunkBytes {
		o.large, more = insert(o.large, p)
		return more
	}
	for p.Len > 0 {
		n := p.Off / chunkBytes
		part := seg.Piece{Off: p.Off, Len: min(p.Len, (n+1)*chunkBytes-p.Off)}
		c := o.chunks[n]
		if c == nil {
			if o.chunks == nil {
				o.chunks = map[int64]*changedChunk{}
			}
			c = &changedChunk{}
			o.chunks[n] = c
			more++
		}
		more += c.add(part)
		p.Off, p.Len = part.End(), p.Len-part.Len
	}
	return more
}

func (c *changedChunk) add(p seg.Piece) (more int) {
	first := (p.Off + memory.BlockBytes - 1) / memory.BlockBytes
	end := p.End() / memory.BlockBytes
	if first >= end { // no whole block
		c.parts, more = insert(c.parts, p)
		return more
	}
	for b := first; b < end; b++ {
		c.blocks[b%chunkBlocks/64] |= 1 << (b % 64)
	}
	for _, x := range []seg.Piece{
		{Off: p.Off, Len: first*memory.BlockBytes - p.Off},
		{Off: end * memory.BlockBytes, Len: p.End() - end*memory.BlockBytes},
	} {
		if x.Len > 0 {
			var n int
			c.parts, n = insert(c.parts, x)
			more += n
		}
	}
	return more
}

// within appends the parts of p that were changed, ascending and apart from each other.
func (o *changed) within(dst []seg.Piece, p seg.Piece) []seg.Piece {
	var found []seg.Piece
	found = overlap(found, o.large, p)
	if first, last := p.Off/chunkBytes, (p.End()-1)/chunkBytes; last-first < int64(len(o.chunks)) {
		for n := first; n <= last; n++ {
			if c := o.chunks[n]; c != nil {
				found = c.within(found, n, p)
			}
		}
	} else {
		for n, c := range o.chunks {
			found = c.within(found, n, p)
		}
	}
	slices.SortFunc(found, func(a, b seg.Piece) int { return cmp.Compare(a.Off, b.Off) })
	begin := len(dst)
	for _, x := range found {
		if n := len(dst); n > begin && dst[n-1].End() >= x.Off {
			dst[n-1].Len = max(dst[n-1].End(), x.End()) - dst[n-1].Off
			continue
		}
		dst = append(dst, x)
	}
	return dst
}

func (c *changedChunk) within(dst []seg.Piece, n int64, p seg.Piece) []seg.Piece {
	dst = overlap(dst, c.parts, p)
	for i, word := range c.blocks {
		for word != 0 {
			low := bits.TrailingZeros64(word)
			run := bits.TrailingZeros64(^(word >> low))
			off := n*chunkBytes + int64(i*64+low)*memory.BlockBytes
			dst = overlap(dst, []seg.Piece{{Off: off, Len: int64(run) * memory.BlockBytes}}, p)
			if low+run >= 64 {
				break
			}
			word &^= (1<<run - 1) << low
		}
	}
	return dst
}

// overlap appends what pieces have in common with p.
func overlap(dst, pieces []seg.Piece, p seg.Piece) []seg.Piece {
	for _, x := range pieces {
		if lo, hi := max(x.Off, p.Off), min(x.End(), p.End()); lo < hi {
			dst = append(dst, seg.Piece{Off: lo, Len: hi - lo})
		}
	}
	return dst
}

// insert joins p with the pieces that it meets, and returns by how many the list has grown.
func insert(list []seg.Piece, p seg.Piece) ([]seg.Piece, int) {
	first, _ := slices.BinarySearchFunc(list, p.Off, func(have seg.Piece, off int64) int {
		return cmp.Compare(have.End(), off)
	})
	last := first
	for ; last < len(list) && list[last].Off <= p.End(); last++ {
		end := max(p.End(), list[last].End())
		p.Off = min(p.Off, list[last].Off)
		p.Len = end - p.Off
	}
	return slices.Replace(list, first, last, p), 1 - (last - first)
}
