package layout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
	"pgregory.net/rapid"
)

func drawLayout(t *rapid.T) *Layout {
	l := &Layout{Version: 1, Unit: UnitMin * rapid.Int64Range(1, 4).Draw(t, "units")}
	for i := range rapid.IntRange(1, 9).Draw(t, "width") {
		l.Servers = append(l.Servers, uint32(i+1))
	}
	return l
}

func TestLocateAndFileOffsetAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		off := rapid.Int64Range(0, FileSizeMax).Draw(t, "off")
		stripe, objOff, run := l.Locate(off)
		if got := l.FileOffset(stripe, objOff); got != off {
			t.Fatalf("offset %d -> stripe %d object %d -> %d", off, stripe, objOff, got)
		}
		if run <= 0 || run > l.Unit || (off+run)%l.Unit != 0 {
			t.Fatalf("run %d from %d does not end with its unit", run, off)
		}
	})
}

func TestSizesAgreeWithTheBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		size := rapid.Int64Range(0, 40*l.Unit).Draw(t, "size")
		want := make([]int64, l.Width())
		for off := int64(0); off < size; {
			s, _, run := l.Locate(off)
			run = min(run, size-off)
			want[s] += run
			off += run
		}
		var file int64
		for s := range want {
			if got := l.ObjectSize(s, size); got != want[s] {
				t.Fatalf("size %d stripe %d: object %d, want %d", size, s, got, want[s])
			}
			file = max(file, l.FileSize(s, want[s]))
		}
		if file != size {
			t.Fatalf("objects of a file of %d bytes imply %d", size, file)
		}
	})
}

func TestWalkCoversTheStreamOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		pieces := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) seg.Piece {
			return seg.Piece{Off: rapid.Int64Range(0, 20*l.Unit).Draw(t, "off"),
				Len: rapid.Int64Range(0, 3*l.Unit).Draw(t, "len")}
		}), 0, 6).Draw(t, "pieces")
		a := seg.List(pieces)
		var covered int64
		l.Walk(a, func(stripe int, o seg.Piece) {
			checkShare(t, l, a, stripe, o, seg.Piece{Off: covered, Len: o.Len})
			covered += o.Len
		})
		if covered != a.Len() {
			t.Fatalf("parts hold %d of %d bytes", covered, a.Len())
		}
	})
}

// checkShare compares the first and last byte of a matched pair with the access itself.
func checkShare(t *rapid.T, l *Layout, a seg.Access, stripe int, o, s seg.Piece) {
	for _, k := range []int64{0, o.Len - 1} {
		c := a.Cursor()
		c.Skip(s.Off + k)
		p, ok := c.Next(1)
		if !ok || p.Off != l.FileOffset(stripe, o.Off+k) {
			t.Fatalf("stream byte %d is file byte %d, share says %d", s.Off+k, p.Off,
				l.FileOffset(stripe, o.Off+k))
		}
	}
}

func TestContiguousAccessIsOnePieceAServer(t *testing.T) {
	l := &Layout{Version: 1, Unit: UnitMin, Servers: []uint32{1, 2, 3, 4}}
	packed := make([]seg.Packer, 4)
	l.Walk(seg.Contig(0, 64*UnitMin), func(stripe int, o seg.Piece) { packed[stripe].Add(o) })
	for i := range packed {
		if a := packed[i].Access(); a.Pieces() != 1 || a.Len() != 16*UnitMin {
			t.Fatalf("stripe %d: %d pieces of %d bytes", i, a.Pieces(), a.Len())
		}
	}
}

func TestWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		var e wire.Enc
		l.Append(&e)
		d := wire.NewDec(e.B)
		got := Decode(&d)
		if err := d.Done(); err != nil || !got.Equal(l) {
			t.Fatalf("%v: %s", err, cmp.Diff(*l, got))
		}
	})
	bad := Layout{Unit: 5, Servers: []uint32{1}}
	var e wire.Enc
	bad.Append(&e)
	d := wire.NewDec(e.B)
	Decode(&d)
	if errs.KindOf(d.Done()) != errs.Protocol {
		t.Fatal("a layout with a unit of 5 bytes was accepted")
	}
}

func FuzzDecode(f *testing.F) {
	var e wire.Enc
	(&Layout{Version: 1, Unit: UnitMin, Servers: []uint32{1, 2}}).Append(&e)
	f.Add(e.B)
	f.Fuzz(func(t *testing.T, b []byte) {
		d := wire.NewDec(b)
		l := Decode(&d)
		if d.Done() == nil && l.Width() > 0 {
			s, o, _ := l.Locate(1 << 50)
			if l.FileOffset(s, o) != 1<<50 {
				t.Fatal("arithmetic breaks for an accepted layout")
			}
		}
	})
}
