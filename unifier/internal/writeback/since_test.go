package writeback

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

var alpha = index.Key{File: 1, Gen: 1}

// TestSince compares what is remembered with a row of bytes: small pieces, blocks, and ranges
// larger than a chunk.
func TestSince(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const base, size = 3*chunkBytes - 100<<10, 200 << 10 // around the end of a chunk
	for range 20 {
		var s since
		model, got := make([]bool, size), make([]bool, size)
		for range 60 {
			p := randomPiece(rng, base, size)
			s.add(alpha, p)
			for i := max(p.Off, base); i < min(p.End(), base+size); i++ {
				model[i-base] = true
			}
			at := seg.Piece{Off: base + rng.Int64N(size)}
			at.Len = rng.Int64N(base + size - at.Off + 1)
			clear(got)
			last := int64(-1)
			for _, x := range s.within(nil, alpha, at) {
				if x.Off <= last {
					t.Fatalf("a piece at %d behind one that ends at %d", x.Off, last)
				}
				last = x.End()
				for i := x.Off; i < x.End(); i++ {
					got[i-base] = true
				}
			}
			want := model[at.Off-base : at.End()-base]
			if !slices.Equal(got[at.Off-base:at.End()-base], want) ||
				slices.Contains(got[:at.Off-base], true) || slices.Contains(got[at.End()-base:], true) {
				t.Fatalf("wrong within %v", at)
			}
		}
		o := s.objects[alpha]
		n := len(o.large) + len(o.chunks)
		for _, c := range o.chunks {
			n += len(c.parts)
		}
		if s.count != n {
			t.Fatalf("%d pieces and chunks, counted %d", n, s.count)
		}
	}
}

func randomPiece(rng *rand.Rand, base, size int64) seg.Piece {
	p := seg.Piece{Off: base + rng.Int64N(size), Len: rng.Int64N(3000)}
	switch rng.IntN(40) {
	case 0: // covers a chunk
		p = seg.Piece{Off: base - chunkBytes + rng.Int64N(size/8), Len: chunkBytes + rng.Int64N(500)}
	case 1, 2, 3, 4, 5: // blocks
		p.Off = p.Off / memory.BlockBytes * memory.BlockBytes
		p.Len = rng.Int64N(4) * memory.BlockBytes
	}
	return p
}
