package seg

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
	"pgregory.net/rapid"
)

// Draw makes small random accesses of all kinds.
func draw(t *rapid.T, name string) Access {
	if rapid.IntRange(0, 2).Draw(t, name+" runs") == 0 {
		return Runs(rapid.SliceOfN(rapid.Custom(drawRun), 1, 8).Draw(t, name))
	}
	if rapid.Bool().Draw(t, name+" list") {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Piece {
			return Piece{rapid.Int64Range(0, 500).Draw(t, "off"), rapid.Int64Range(0, 40).Draw(t, "len")}
		}), 0, 12).Draw(t, name)
		return List(list)
	}
	dims := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Dim {
		return Dim{rapid.Int64Range(0, 5).Draw(t, "count"), rapid.Int64Range(0, 60).Draw(t, "stride")}
	}), 0, 3).Draw(t, name)
	return Strided(Vector{rapid.Int64Range(0, 100).Draw(t, "voff"),
		rapid.Int64Range(0, 30).Draw(t, "block"), dims})
}

// stream is the model: every byte address of the access, in order.
func stream(a Access) []int64 {
	var out []int64
	add := func(off, n int64) {
		for i := range n {
			out = append(out, off+i)
		}
	}
	for _, r := range a.runs {
		for i := range r.Count {
			add(r.Off+i*r.Stride, r.Len)
		}
	}
	if !a.isV {
		for _, p := range a.list {
			add(p.Off, p.Len)
		}
		return out
	}
	var walk func(off int64, dims []Dim)
	walk = func(off int64, dims []Dim) {
		if len(dims) == 0 {
			add(off, a.vec.Block)
			return
		}
		for i := range dims[0].Count {
			walk(off+i*dims[0].Stride, dims[1:])
		}
	}
	walk(a.vec.Off, a.vec.Dims)
	return out
}

func TestCursorVisitsTheStreamInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := draw(t, "a")
		want := stream(a)
		if a.Len() != int64(len(want)) {
			t.Fatalf("Len %d, model %d", a.Len(), len(want))
		}
		var got []int64
		for c := a.Cursor(); ; {
			p, ok := c.Next(rapid.Int64Range(1, 50).Draw(t, "max"))
			if !ok {
				break
			}
			for i := range p.Len {
				got = append(got, p.Off+i)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestSkipEqualsWalking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := draw(t, "a")
		want := stream(a)
		c, at := a.Cursor(), int64(0)
		for range 5 {
			n := rapid.Int64Range(0, 80).Draw(t, "skip")
			c.Skip(n)
			at = min(at+n, int64(len(want)))
			p, ok := c.Next(3)
			if ok != (at < int64(len(want))) {
				t.Fatalf("after skipping to %d of %d: ok=%v", at, len(want), ok)
			}
			if ok && p.Off != want[at] {
				t.Fatalf("after skipping to %d: at %d, want %d", at, p.Off, want[at])
			}
			at += p.Len
		}
	})
}

func TestZipMatchesStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		sa, sb := stream(a), stream(b)
		n := min(len(sa), len(sb))
		i := 0
		Zip(a, b, func(pa, pb Piece) bool {
			if pa.Len != pb.Len || pa.Len == 0 {
				t.Fatalf("pieces %v and %v", pa, pb)
			}
			for k := range pa.Len {
				if pa.Off+k != sa[i] || pb.Off+k != sb[i] {
					t.Fatalf("byte %d: %d,%d want %d,%d", i, pa.Off+k, pb.Off+k, sa[i], sb[i])
				}
				i++
			}
			return true
		})
		if i != n {
			t.Fatalf("visited %d of %d bytes", i, n)
		}
	})
}

func TestSubAndSpanAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := draw(t, "a")
		s := stream(a)
		pos := rapid.Int64Range(0, int64(len(s))).Draw(t, "pos")
		n := rapid.Int64Range(0, int64(len(s))).Draw(t, "n")
		want := s[pos:min(pos+n, int64(len(s)))]
		got := stream(a.Sub(pos, n))
		if len(want) != len(got) || (len(want) > 0 && !cmp.Equal(want, got)) {
			t.Fatalf("Sub(%d,%d) = %v, want %v", pos, n, got, want)
		}
		var lo, hi int64 = math.MaxInt64, 0
		for _, x := range s {
			lo, hi = min(lo, x), max(hi, x+1)
		}
		span := a.Span()
		if len(s) == 0 {
			lo, hi = 0, 0
		}
		if span != (Piece{lo, hi - lo}) {
			t.Fatalf("span %v, want [%d,%d)", span, lo, hi)
		}
	})
}

func TestWireRoundTrip(t *testing.T) {
	var used Scratch
	rapid.Check(t, func(t *rapid.T) {
		a := draw(t, "a")
		var e wire.Enc
		a.Append(&e)
		if len(e.B) != a.WireBytes() {
			t.Fatalf("%d bytes, WireBytes says %d", len(e.B), a.WireBytes())
		}
		d := wire.NewDec(e.B)
		b := Decode(&d)
		if err := d.Done(); err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(stream(a), stream(b)) {
			t.Fatal("access changed on the wire")
		}
		d = wire.NewDec(e.B)
		b = DecodeInto(&d, &used)
		if err := d.Done(); err != nil || !cmp.Equal(stream(a), stream(b)) {
			t.Fatalf("access changed on the wire, into memory used before: %v", err)
		}
	})
}

func TestValidateRefusesWhatAPeerMustNotSend(t *testing.T) {
	const big = math.MaxInt64
	for _, c := range []struct {
		name string
		a    Access
		want errs.Kind
	}{
		{"a million rows", Strided(Vector{0, 8, []Dim{{1000000, 4096}}}), errs.OK},
		{"a billion pieces", Strided(Vector{0, 1, []Dim{{1 << 15, 0}, {1 << 15, 0}}}), errs.TooBig},
		{"product overflows", Strided(Vector{0, 1, []Dim{{big, 0}, {big, 0}}}), errs.TooBig},
		{"end overflows", Strided(Vector{0, 1, []Dim{{3, big / 2}}}), errs.Invalid},
		{"negative", List([]Piece{{-1, 4}}), errs.Invalid},
		{"piece past the end", List([]Piece{{1 << 40, 1}}), errs.Invalid},
		{"piece wraps", List([]Piece{{big, big}}), errs.Invalid},
		{"empty", List(nil), errs.OK},
		{"a run of a billion", Runs([]Run{{Piece{0, 1}, 1 << 30, 1}}), errs.TooBig},
		{"runs of a billion", Runs([]Run{{Piece{0, 1}, 5, 1}, {Piece{0, 1}, big, 0}}), errs.TooBig},
		{"a run of none", Runs([]Run{{Piece{0, 1}, 0, 1}}), errs.Invalid},
		{"a run backwards", Runs([]Run{{Piece{100, 1}, 2, -1}}), errs.Invalid},
		{"a run past the end", Runs([]Run{{Piece{0, 1}, 3, 1 << 40}}), errs.Invalid},
		{"a run that wraps", Runs([]Run{{Piece{big, 1}, 3, big}}), errs.Invalid},
	} {
		err := c.a.Validate(1<<20, 1<<40)
		if got := errs.KindOf(err); got != c.want {
			t.Errorf("%s: %v, want kind %v", c.name, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	var e wire.Enc
	Strided(Vector{1, 2, []Dim{{3, 4}}}).Append(&e)
	List([]Piece{{1, 2}, {3, 4}}).Append(&e)
	f.Add(e.B)
	e.B = nil
	Runs([]Run{{Piece{7, 2}, 3, 9}, {Piece{1, 4}, 1, 0}}).Append(&e)
	f.Add(e.B)
	f.Fuzz(func(t *testing.T, msg []byte) {
		d := wire.NewDec(msg)
		a := Decode(&d)
		if d.Err() != nil {
			return
		}
		if err := a.Validate(1<<16, 1<<20); err != nil {
			if errors.Is(err, errs.IO) {
				t.Fatal("refusal without a kind")
			}
			return
		}
		var n int64
		for c := a.Cursor(); ; {
			p, ok := c.Next(math.MaxInt64)
			if !ok {
				break
			}
			if p.Off < 0 || p.End() > 1<<20 {
				t.Fatalf("validated access leaves its object: %v", p)
			}
			n += p.Len
		}
		if n != a.Len() {
			t.Fatalf("walked %d bytes of %d", n, a.Len())
		}
	})
}
