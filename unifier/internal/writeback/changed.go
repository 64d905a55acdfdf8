package writeback

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

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
