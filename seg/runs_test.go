package seg

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-storage/sluice/wire"
	"pgregory.net/rapid"
)

func drawRun(t *rapid.T) Run {
	return Run{
		Piece: Piece{rapid.Int64Range(0, 300).Draw(t, "off"), rapid.Int64Range(0, 20).Draw(t, "len")},
		Count: rapid.Int64Range(1, 6).Draw(t, "count"), Stride: rapid.Int64Range(0, 40).Draw(t, "stride"),
	}
}

// TestPackerKeepsTheStream packs pieces that often touch, repeat or stand apart.
func TestPackerKeepsTheStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k Packer
		var list []Piece
		var at, length, gap int64 = 0, 4, 4
		for range rapid.IntRange(0, 60).Draw(t, "pieces") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				length = rapid.Int64Range(0, 5).Draw(t, "length")
			case 1:
				gap = rapid.Int64Range(0, 5).Draw(t, "gap")
			case 2:
				at = rapid.Int64Range(0, 100).Draw(t, "at")
			case 3:
				k.Cut()
			}
			if rapid.IntRange(0, 5).Draw(t, "run") == 0 {
				r := drawRun(t)
				k.AddRun(r)
				for i := range r.Count {
					list = append(list, Piece{r.Off + i*r.Stride, r.Len})
				}
				at = r.last() + r.Len
			}
			k.Add(Piece{at, length})
			list = append(list, Piece{at, length})
			at += length + gap
		}
		a, want := k.Access(), stream(List(list))
		if got := stream(a); len(got) != len(want) || len(want) > 0 && !cmp.Equal(got, want) {
			t.Fatalf("%v became %v", list, k.Runs())
		}
		if k.Len != int64(len(want)) || k.Count != a.Pieces() && len(want) > 0 {
			t.Fatalf("counted %d bytes in %d pieces: %+v", k.Len, k.Count, a)
		}
		if n := a.WireBytes(); n > k.WireMax() {
			t.Fatalf("%d bytes on the wire, WireMax %d", n, k.WireMax())
		}
	})
}

// TestPackerFindsRegularity: what a vector means is one vector, however it is cut.
func TestPackerFindsRegularity(t *testing.T) {
	var k Packer
	for i := range int64(1000) {
		k.Add(Piece{i * 100, 10})
		k.Add(Piece{i*100 + 10, 20})
	}
	if len(k.Runs()) != 1 || k.Len != 30000 {
		t.Fatalf("%d runs of %d bytes", len(k.Runs()), k.Len)
	}
	k.Reset()
	for i := range int64(1000) {
		k.Add(Piece{7 + i*100, 30})
	}
	a := k.Access()
	if want := Strided(Vector{7, 30, []Dim{{1000, 100}}}); !cmp.Equal(stream(a), stream(want)) ||
		a.WireBytes() != want.WireBytes() {
		t.Fatalf("%+v", a)
	}
}

// TestRunsOnTheWireAreShort: a tile whose rows are cut by stripe units.
func TestRunsOnTheWireAreShort(t *testing.T) {
	var k Packer
	for unit := range int64(144) {
		k.Add(Piece{unit * 65536, 20480})
		k.Add(Piece{unit*65536 + 49152 - unit%3*4096, 8192})
	}
	var e wire.Enc
	k.Access().Append(&e)
	if per := len(e.B) / 288; per > 8 {
		t.Fatalf("%d bytes a piece", per)
	}
}

func TestOverlapsAndShiftAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := draw(t, "a")
		seen, twice := map[int64]bool{}, false
		for _, at := range stream(a) {
			twice = twice || seen[at]
			seen[at] = true
		}
		if a.Overlaps() != twice {
			t.Fatalf("%+v: Overlaps says %v", a, !twice)
		}
		want := stream(a)
		for i := range want {
			want[i] += 17
		}
		if got := stream(a.Shift(17)); !cmp.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
