package iod

import "github.com/sluice-storage/sluice/internal/crc32c"

// Summing computes the checksums of a stream that is there in pieces. The zero value is ready;
// Reset makes it so again and keeps the memory.
type Summing struct {
	sums []uint32
	crc  uint32
	in   int // bytes of the stream since the last sum that is complete
}

// Reset begins a new stream.
func (s *Summing) Reset() { s.sums, s.crc, s.in = s.sums[:0], 0, 0 }

// Add continues the stream.
func (s *Summing) Add(b []byte) {
	for len(b) > 0 {
		n := min(len(b), SumChunk-s.in)
		s.crc = crc32c.Update(s.crc, b[:n])
		b = b[n:]
		if s.in += n; s.in == SumChunk {
			s.sums = append(s.sums, s.crc)
			s.crc, s.in = 0, 0
		}
	}
}

// Sums ends the stream. The slice is valid until Reset.
func (s *Summing) Sums() []uint32 {
	if s.in > 0 {
		s.sums = append(s.sums, s.crc)
		s.crc, s.in = 0, 0
	}
	return s.sums
}
