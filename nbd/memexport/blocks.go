package memexport

import (
	"math/bits"
	"sync/atomic"
)

// blocks is a set of block numbers, one bit each, safe for concurrent use. A bit that is clear says
// that the block is all zero; one that is set says nothing.
type blocks struct {
	words []atomic.Uint64
}

func newBlocks(size int64) *blocks {
	n := (max(size, 0) + blockBytes - 1) / blockBytes
	return &blocks{words: make([]atomic.Uint64, (n+63)/64)}
}

func (b *blocks) marked(block int64) bool {
	return b.words[block/64].Load()>>(block%64)&1 == 1
}

// mark sets the bits of all blocks that the range touches.
func (b *blocks) mark(off, length int64) {
	b.each(off, length, func(w *atomic.Uint64, mask uint64) {
		if w.Load()&mask != mask {
			w.Or(mask)
		}
	})
}

// clear clears the bits of all blocks that the range touches.
func (b *blocks) clear(off, length int64) {
	b.each(off, length, func(w *atomic.Uint64, mask uint64) { w.And(^mask) })
}

// each calls do for every word that has bits of the range, with those bits.
func (b *blocks) each(off, length int64, do func(w *atomic.Uint64, mask uint64)) {
	if length == 0 {
		return
	}
	first, last := off/blockBytes, (off+length-1)/blockBytes
	for first <= last {
		word, bit := first/64, first%64
		count := min(64-bit, last-first+1)
		mask := (^uint64(0) >> (64 - count)) << bit
		do(&b.words[word], mask)
		first += count
	}
}

// run returns the end of the run of equal bits that starts at block, at most limit rounded up to a
// word, and whether the bits are set.
func (b *blocks) run(block, limit int64) (end int64, set bool) {
	first := block
	set = b.marked(block)
	for block < limit {
		word := b.words[block/64].Load()
		if set {
			word = ^word
		}
		word &= ^uint64(0) << (block % 64)
		if word != 0 {
			// At least one block, even if the first one changed since it was looked at.
			return max(block/64*64+int64(bits.TrailingZeros64(word)), first+1), set
		}
		block = (block/64 + 1) * 64
	}
	return block, set
}
