package unifier

import (
	"math/bits"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/mem"
)

// Memory comes in chunks (one arena each), which are cut into slabs of 64 KiB. A slab is free or
// serves blocks of one class; a free slab serves any class, so that sizes can follow the work:
//
//	chunk    | slab 0           | slab 1           | slab 2           | ...
//	          class 64 KiB: 1    class 4 KiB: 16    free
//
// The first chunk is ready: resident and registered from the start. The others are raw: mapped and
// registered when they are needed first, and given back by Shrink.
const (
	slabShift  = 16
	slabBytes  = 1 << slabShift
	blockShift = 12 // of the smallest class, and of what is summed
	blockBytes = 1 << blockShift
	partsMax   = slabBytes / blockBytes
)

// classFree marks a slab that serves nobody. Classes are counted by the shift of their size.
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
	shift  uint8           // of its class; classFree
	used   uint16          // a bit for each part that is out
	pinned int             // units in it that somebody holds
	owners [partsMax]*unit // of the parts; nil for private memory

	// sums are the CRC-32C of the blocks, right for those of a unit whose fill is over. Whoever
	// may write a block writes its sum, without the lock.
	sums [partsMax]uint32

	listed     bool
	prev, next *slab // in memory.partial
}

func (s *slab) full() uint16 { return uint16(1<<(slabBytes>>s.shift) - 1) }

// block is one part of a slab.
type block struct {
	slab *slab
	part int32
}

func (b block) size() int { return 1 << b.slab.shift }

// start is where the block begins in its chunk.
func (b block) start() int { return b.slab.nth<<slabShift + int(b.part)<<b.slab.shift }

// bytes are n bytes at lo of the block.
func (b block) bytes(lo, n int) []byte {
	at := b.start() + lo
	return b.slab.chunk.mem[at : at+n : at+n]
}

// sums are the sums of the block's blocks of 4 KiB.
func (b block) sums() []uint32 {
	at := int(b.part) << b.slab.shift >> blockShift
	return b.slab.sums[at : at+b.size()>>blockShift]
}

// memory is all that the cache has mapped. Guarded by Cache.mu.
type memory struct {
	chunks  []*chunk
	partial [slabShift + 1]*slab // by class: slabs with parts out and parts free
	cursor  int                  // chunk that gave the last free slab

	slabs, free int   // mapped now
	inUse       int64 // bytes of blocks that are out
	high        int64 // of mapped and reserved memory together, in bytes
}

func newChunk(a *mem.Arena, bytes int64, ready bool) *chunk {
	n := int(bytes >> slabShift)
	k := &chunk{arena: a, mem: a.Bytes(), slabs: make([]slab, n), ready: ready, free: n,
		vacant: make([]uint64, (n+63)/64)}
	for i := range k.slabs {
		k.slabs[i].chunk, k.slabs[i].nth = k, i
		k.vacant[i/64] |= 1 << (i % 64)
	}
	return k
}

func (m *memory) add(k *chunk) {
	m.chunks = append(m.chunks, k)
	m.slabs += len(k.slabs)
	m.free += len(k.slabs)
}

// remove takes out a chunk, all of which must be free.
func (m *memory) remove(k *chunk) {
	invariant.Check(k.free == len(k.slabs), "unifier: a chunk in use is given back")
	for i := range m.chunks {
		if m.chunks[i] == k {
			m.chunks = append(m.chunks[:i], m.chunks[i+1:]...)
			break
		}
	}
	m.cursor = 0
	m.slabs -= len(k.slabs)
	m.free -= len(k.slabs)
}

// take gives a block of the class, next to another one where that is free: neighbours make one
// piece of a gather list. It says no when nothing is free.
func (m *memory) take(shift uint8, after block) (block, bool) {
	s := after.slab
	if s != nil && s.shift == shift {
		part := after.part + 1
		if int(part) < slabBytes>>shift && s.used&(1<<part) == 0 {
			return m.cut(s, part), true
		}
		if nth := s.nth + 1; int(part) == slabBytes>>shift && nth < len(s.chunk.slabs) {
			if follow := &s.chunk.slabs[nth]; follow.shift == classFree {
				m.open(follow, shift)
				return m.cut(follow, 0), true
			}
		}
	}
	s = m.partial[shift]
	if s == nil {
		if s = m.vacant(); s == nil {
			return block{}, false
		}
		m.open(s, shift)
	}
	return m.cut(s, int32(bits.TrailingZeros16(^s.used))), true
}

// vacant finds a free slab, first where the last one was found.
func (m *memory) vacant() *slab {
	if m.free == 0 {
		return nil
	}
	for i := range m.chunks {
		k := m.chunks[(m.cursor+i)%len(m.chunks)]
		if k.free == 0 {
			continue
		}
		m.cursor = (m.cursor + i) % len(m.chunks)
		for w, word := range k.vacant {
			if word != 0 {
				return &k.slabs[w*64+bits.TrailingZeros64(word)]
			}
		}
	}
	return nil
}

// open gives a free slab to a class.
func (m *memory) open(s *slab, shift uint8) {
	s.shift = shift
	s.chunk.vacant[s.nth/64] &^= 1 << (s.nth % 64)
	s.chunk.free--
	m.free--
}

func (m *memory) cut(s *slab, part int32) block {
	s.used |= 1 << part
	m.inUse += 1 << s.shift
	m.list(s, s.used != s.full())
	return block{s, part}
}

// give takes a block back.
func (m *memory) give(b block) {
	s := b.slab
	invariant.Check(s.used&(1<<b.part) != 0, "unifier: memory given back twice")
	if invariant.Enabled {
		poison(b.bytes(0, b.size()))
	}
	s.used &^= 1 << b.part
	s.owners[b.part] = nil
	m.inUse -= 1 << s.shift
	m.list(s, s.used != 0)
	if s.used == 0 {
		s.shift = classFree
		s.chunk.vacant[s.nth/64] |= 1 << (s.nth % 64)
		s.chunk.free++
		m.free++
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

// list enters a slab where parts of its class are looked for, or takes it out.
func (m *memory) list(s *slab, in bool) {
	if s.listed == in {
		return
	}
	head := &m.partial[s.shift]
	if s.listed = in; in {
		s.prev, s.next = nil, *head
		if *head != nil {
			(*head).prev = s
		}
		*head = s
		return
	}
	if s.prev == nil {
		*head = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
}

// gather collects pieces of blocks as a list for the network and for the disk; pieces that touch
// in memory flow together.
type gather struct {
	last *chunk
	end  int // of the last piece in its chunk
}

func (g *gather) sge(list []fabric.Sge, b block, lo, n int) []fabric.Sge {
	k, at := b.slab.chunk, b.start()+lo
	if g.joins(k, at) {
		p := &list[len(list)-1]
		p.Buf = k.mem[at-len(p.Buf) : at+n : at+n]
	} else {
		list = append(list, fabric.Sge{Reg: k.arena.Region(), Buf: k.mem[at : at+n : at+n]})
	}
	g.last, g.end = k, at+n
	return list
}

func (g *gather) bytes(list [][]byte, b block, lo, n int) [][]byte {
	k, at := b.slab.chunk, b.start()+lo
	if g.joins(k, at) {
		p := &list[len(list)-1]
		*p = k.mem[at-len(*p) : at+n : at+n]
	} else {
		list = append(list, k.mem[at:at+n:at+n])
	}
	g.last, g.end = k, at+n
	return list
}

func (g *gather) joins(k *chunk, at int) bool { return g.last == k && g.end == at }
