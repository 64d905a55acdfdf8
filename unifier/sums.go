package unifier

import "github.com/sluice-storage/sluice/internal/crc32c"

// stream sums a stream chunk by chunk, from the sums of blocks where they lie on its way and from
// the bytes elsewhere.
type stream struct {
	out         []uint32
	crc         uint32
	chunk, left int64
}

func newStream(out []uint32, chunk int64) stream {
	return stream{out: out, chunk: chunk, left: chunk}
}

// fits tells whether a whole block lies inside of the chunk.
func (s *stream) fits() bool { return s.left >= blockBytes }

// block adds one block by its sum.
func (s *stream) block(sum uint32) {
	s.crc = crc32c.JoinBlocks([]uint32{s.crc, sum})
	s.advance(blockBytes)
}

// blocks adds a row of blocks, as many as fit, and tells how many that were.
func (s *stream) blocks(sums []uint32) int {
	n := min(len(sums), int(s.left/blockBytes))
	if s.left == s.chunk {
		s.crc = crc32c.JoinBlocks(sums[:n])
		s.advance(int64(n) * blockBytes)
		return n
	}
	for _, sum := range sums[:n] {
		s.block(sum)
	}
	return n
}

func (s *stream) bytes(b []byte) {
	for len(b) > 0 {
		n := min(s.left, int64(len(b)))
		s.crc = crc32c.Update(s.crc, b[:n])
		b = b[n:]
		s.advance(n)
	}
}

func (s *stream) advance(n int64) {
	if s.left -= n; s.left == 0 {
		s.end()
	}
}

func (s *stream) end() {
	s.out = append(s.out, s.crc)
	s.crc, s.left = 0, s.chunk
}

// finish ends the last chunk, which may be short.
func (s *stream) finish() []uint32 {
	if s.left < s.chunk {
		s.end()
	}
	return s.out
}

// unit adds [lo, lo+n) of a unit whose blocks are summed.
func (s *stream) unit(u *unit, lo, n int64) {
	for n > 0 {
		if lo%blockBytes == 0 && n >= blockBytes && s.fits() {
			at := lo / blockBytes
			k := int64(s.blocks(u.blk.sums()[at:at+n/blockBytes])) * blockBytes
			lo, n = lo+k, n-k
			continue
		}
		k := min(n, blockBytes-lo%blockBytes)
		s.bytes(u.blk.bytes(int(lo), int(k)))
		lo, n = lo+k, n-k
	}
}
