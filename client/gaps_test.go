package client

import (
	"math/rand/v2"
	"testing"
)

// TestGaps compares with a map of bytes: there are gaps as long as something is not written.
func TestGaps(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 2000 {
		var g gaps
		var size int64
		var written [64]bool
		for range rng.IntN(30) {
			from := rng.Int64N(64)
			end := from + rng.Int64N(64-from)
			if rng.IntN(10) == 0 {
				end = min(end, size)
				g.cut(end)
				clear(written[end:])
				size = end
				continue
			}
			if end == from {
				continue
			}
			g.wrote(size, from, end)
			for i := from; i < end; i++ {
				written[i] = true
			}
			size = max(size, end)
		}
		want := false
		for _, w := range written[:size] {
			want = want || !w
		}
		if got := g.untold(); got != want && !g.many {
			t.Fatalf("seed %d, round %d: gaps %v, want %v, of %v", seed, round, got, want, written[:size])
		}
	}
}

func TestManyGaps(t *testing.T) {
	var g gaps
	for i := range int64(100) {
		g.wrote(10*i, 10*i+5, 10*i+10)
	}
	if !g.untold() || len(g.list) > gapsMax {
		t.Fatalf("%+v", g)
	}
	if g.cut(500); !g.untold() {
		t.Fatal("a cut took gaps away that are before it")
	}
	if g.cut(0); g.untold() {
		t.Fatal("an empty file has gaps")
	}
}
