package memory

import (
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
)

// Gather lists pieces of blocks for the network or for the disk; pieces that touch in memory flow
// together. One Gather makes one list.
type Gather struct {
	last *chunk
	end  int // of the last piece in its chunk
}

// Sge appends n bytes at lo of the block to a list for the network.
func (g *Gather) Sge(list []fabric.Sge, b Block, lo, n int) []fabric.Sge {
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

// Bytes appends n bytes at lo of the block to a list for the disk.
func (g *Gather) Bytes(list [][]byte, b Block, lo, n int) [][]byte {
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

func (g *Gather) joins(k *chunk, at int) bool { return g.last == k && g.end == at }

// Summer sums a stream chunk by chunk, from the sums of blocks where whole blocks lie inside of a
// chunk and from the bytes elsewhere.
type Summer struct {
	out         []uint32
	crc         uint32
	chunk, left int64
}

// NewSummer appends the CRC-32C of each chunk bytes to out.
func NewSummer(out []uint32, chunk int64) Summer {
	return Summer{out: out, chunk: chunk, left: chunk}
}

// Fits tells whether 4 KiB lie inside of the chunk.
func (s *Summer) Fits() bool { return s.left >= BlockBytes }

// Sum adds 4 KiB, which must fit, by their sum.
func (s *Summer) Sum(sum uint32) {
	s.crc = crc32c.JoinBlocks([]uint32{s.crc, sum})
	s.advance(BlockBytes)
}

// sums adds as many sums of 4 KiB each as fit, and tells how many that were.
func (s *Summer) sums(sums []uint32) int {
	n := min(len(sums), int(s.left/BlockBytes))
	if s.left == s.chunk {
		s.crc = crc32c.JoinBlocks(sums[:n])
		s.advance(int64(n) * BlockBytes)
		return n
	}
	for _, sum := range sums[:n] {
		s.Sum(sum)
	}
	return n
}

// Bytes adds bytes whose sums nobody has.
func (s *Summer) Bytes(b []byte) {
	for len(b) > 0 {
		n := min(s.left, int64(len(b)))
		s.crc = crc32c.Update(s.crc, b[:n])
		b = b[n:]
		s.advance(n)
	}
}

// Block adds n bytes at lo of a block whose sums are right.
func (s *Summer) Block(b Block, lo, n int64) {
	for n > 0 {
		if lo%BlockBytes == 0 && n >= BlockBytes && s.Fits() {
			at := lo / BlockBytes
			k := int64(s.sums(b.Sums()[at:at+n/BlockBytes])) * BlockBytes
			lo, n = lo+k, n-k
			continue
		}
		k := min(n, BlockBytes-lo%BlockBytes)
		s.Bytes(b.Bytes(int(lo), int(k)))
		lo, n = lo+k, n-k
	}
}

func (s *Summer) advance(n int64) {
	if s.left -= n; s.left == 0 {
		s.end()
	}
}

func (s *Summer) end() {
	s.out = append(s.out, s.crc)
	s.crc, s.left = 0, s.chunk
}

// Finish ends the last chunk, which may be short, and returns all sums.
func (s *Summer) Finish() []uint32 {
	if s.left < s.chunk {
		s.end()
	}
	return s.out
}
