package memory

import (
	"math/bits"

	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/mem"
)

// Sizes of memory. Memory comes in chunks (one arena each), which are cut into slabs of 64 KiB. A
// slab is free or serves blocks of one class; a free slab serves any class, so that sizes can
// follow the work:
//
//	chunk    | slab 0           | slab 1           | slab 2           | ...
//	          class 64 KiB: 1    class 4 KiB: 16    free
//
// A class is named by its shift: blocks of class 12 have 1<<12 bytes.
const (
	SlabShift     = 16
	SlabBytes     = 1 << SlabShift
	BlockShift    = 12 // of the smallest class, and of what has one sum
	BlockBytes    = 1 << BlockShift
	blocksPerSlab = SlabBytes / BlockBytes // blocks of the smallest class in a slab
)

// classFree marks a slab that serves no class.
const classFree = 0

type chunk struct {
	arena  *mem.Arena
	mem    []byte
	slabs  []slab
	vacant []uint64 // a bit for each free slab
	free   int      // slabs
	ready  bool
}

type slab struct {
	chunk  *chunk
	nth    int
	shift  uint8              // of its class; classFree
	used   uint16             // a bit for each block that is allocated
	held   int                // units in it that somebody holds
	owned  int                // blocks with an owner
	owners [blocksPerSlab]any // of the blocks; nil: private memory

	// sums are the CRC-32C of 4 KiB each. Whoever may write the bytes writes their sum, without the
	// lock.
	sums [blocksPerSlab]uint32

	link list.Link[slab] // in freeList.partial
}

func (s *slab) full() uint16 { return uint16(1<<(SlabBytes>>s.shift) - 1) }

// Block is contiguous memory of one class. The zero Block is none.
type Block struct {
	slab *slab
	nth  int32 // in its slab
}

// Shift is the block's class.
func (b Block) Shift() uint8 { return b.slab.shift }

// Size is how many bytes the block has.
func (b Block) Size() int { return 1 << b.slab.shift }

// start is where the block begins in its chunk.
func (b Block) start() int { return b.slab.nth<<SlabShift + int(b.nth)<<b.slab.shift }

// Bytes are n bytes at lo of the block.
func (b Block) Bytes(lo, n int) []byte {
	at := b.start() + lo
	return b.slab.chunk.mem[at : at+n : at+n]
}

// All are all bytes of the block.
func (b Block) All() []byte { return b.Bytes(0, b.Size()) }

// Sums are the CRC-32C of each 4 KiB of the block.
func (b Block) Sums() []uint32 {
	at := int(b.nth) << b.slab.shift >> BlockShift
	return b.slab.sums[at : at+b.Size()>>BlockShift]
}

// SetOwner says that the block is no longer private: the owner can be made to give it back.
func (b Block) SetOwner(owner any) {
	b.slab.owners[b.nth] = owner
	b.slab.owned++
}

// Owner is what SetOwner was told; nil: the block is private.
func (b Block) Owner() any { return b.slab.owners[b.nth] }

// Owners are the owners of all blocks in the same slab, if all of them could be evicted: then no
// block of the slab is private or held.
func (b Block) Owners() (owners [blocksPerSlab]any, ok bool) {
	s := b.slab
	if s.shift == classFree || s.held > 0 || s.owned < bits.OnesCount16(s.used) {
		return owners, false
	}
	return s.owners, true
}

// freeList is all memory that is mapped, and which of it is free.
type freeList struct {
	chunks  []*chunk
	partial [SlabShift + 1]list.List[slab] // by class: slabs with allocated and free blocks
	cursor  int                            // chunk that gave the last free slab
	free    int                            // slabs
	inUse   int64                          // bytes of allocated blocks
}

func newChunk(a *mem.Arena, bytes int64, ready bool) *chunk {
	n := int(bytes >> SlabShift)
	k := &chunk{arena: a, mem: a.Bytes(), slabs: make([]slab, n), ready: ready, free: n,
		vacant: make([]uint64, (n+63)/64)}
	for i := range k.slabs {
		k.slabs[i].chunk, k.slabs[i].nth = k, i
		k.vacant[i/64] |= 1 << (i % 64)
	}
	return k
}

func (f *freeList) add(k *chunk) {
	f.chunks = append(f.chunks, k)
	f.free += len(k.slabs)
}

// has tells whether a block of the class is free.
func (f *freeList) has(shift uint8) bool { return !f.partial[shift].Empty() || f.free > 0 }

// take allocates a block of the class, behind the block after where that is free: neighbours make
// one piece of a gather list. It says no when nothing is free.
func (f *freeList) take(shift uint8, after Block) (Block, bool) {
	s := after.slab
	if s != nil && s.shift == shift {
		nth := after.nth + 1
		if int(nth) < SlabBytes>>shift && s.used&(1<<nth) == 0 {
			return f.cut(s, nth), true
		}
		if slab := s.nth + 1; int(nth) == SlabBytes>>shift && slab < len(s.chunk.slabs) {
			if follow := &s.chunk.slabs[slab]; follow.shift == classFree {
				f.open(follow, shift)
				return f.cut(follow, 0), true
			}
		}
	}
	if s = f.partial[shift].First(); s == nil {
		if s = f.vacant(); s == nil {
			return Block{}, false
		}
		f.open(s, shift)
	}
	return f.cut(s, int32(bits.TrailingZeros16(^s.used))), true
}

// vacant finds a free slab, first where the last one was found.
func (f *freeList) vacant() *slab {
	if f.free == 0 {
		return nil
	}
	for i := range f.chunks {
		k := f.chunks[(f.cursor+i)%len(f.chunks)]
		if k.free == 0 {
			continue
		}
		f.cursor = (f.cursor + i) % len(f.chunks)
		for w, word := range k.vacant {
			if word != 0 {
				return &k.slabs[w*64+bits.TrailingZeros64(word)]
			}
		}
	}
	return nil
}

// open gives a free slab to a class.
func (f *freeList) open(s *slab, shift uint8) {
	s.shift = shift
	s.chunk.vacant[s.nth/64] &^= 1 << (s.nth % 64)
	s.chunk.free--
	f.free--
}

// cut allocates one block of a slab.
func (f *freeList) cut(s *slab, nth int32) Block {
	s.used |= 1 << nth
	f.inUse += 1 << s.shift
	f.list(s, s.used != s.full())
	return Block{s, nth}
}

// give takes a block back.
func (f *freeList) give(b Block) {
	s := b.slab
	invariant.Check(s.used&(1<<b.nth) != 0, "unifier: memory given back twice")
	if invariant.Enabled {
		poison(b.All())
	}
	s.used &^= 1 << b.nth
	if s.owners[b.nth] != nil {
		s.owners[b.nth] = nil
		s.owned--
	}
	f.inUse -= 1 << s.shift
	f.list(s, s.used != 0)
	if s.used == 0 {
		s.shift = classFree
		s.chunk.vacant[s.nth/64] |= 1 << (s.nth % 64)
		s.chunk.free++
		f.free++
	}
}

// poison makes what is used after it was given back differ from any data. It doubles what it has
// written, which is the fastest way to fill.
func poison(b []byte) {
	b[0] = 0xDB
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// list enters a slab where blocks of its class are looked for, or takes it out.
func (f *freeList) list(s *slab, in bool) {
	switch partial := &f.partial[s.shift]; {
	case in && !s.link.In():
		partial.PushFirst(&s.link, s)
	case !in && s.link.In():
		partial.Remove(&s.link)
	}
}
