package segment

import (
	"bytes"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/seg"
	"pgregory.net/rapid"
)

// TestGatherAndScatterAreEachOthersInverse copies random pieces of random windows to random places
// and back.
func TestGatherAndScatterAreEachOthersInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		windows := func(total int, name string) []fabric.Sge {
			var all []fabric.Sge
			for total > 0 {
				n := rapid.IntRange(0, total).Draw(t, name)
				if len(all) > 8 {
					n = total
				}
				all = append(all, fabric.Sge{Buf: make([]byte, n)})
				total -= n
			}
			return all
		}
		const size = 200
		m := &Memory{Windows: windows(size, "window")}
		var list []seg.Piece
		for off := int64(0); off < size; {
			n := rapid.Int64Range(1, size-off).Draw(t, "piece")
			list = append(list, seg.Piece{Off: off, Len: n})
			off += n + rapid.Int64Range(0, 20).Draw(t, "gap")
		}
		m.Access = seg.List(list)
		n := int(m.Len())
		there := windows(n, "there")
		want := make([]byte, 0, n)
		next := byte(1)
		for _, w := range there {
			for i := range w.Buf {
				w.Buf[i] = next
				want = append(want, next)
				next = next%250 + 1
			}
		}
		if err := m.Scatter(there, int64(n)); err != nil {
			t.Fatal(err)
		}
		back := []fabric.Sge{{Buf: make([]byte, n)}}
		if err := m.Gather(back); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back[0].Buf, want) {
			t.Fatal("other bytes came back")
		}
		if err := m.Scatter(there, int64(n)+1); err == nil {
			t.Fatal("more was copied than there is")
		}
		if err := m.Gather([]fabric.Sge{{Buf: make([]byte, n-1)}}); err == nil {
			t.Fatal("copied to where there is no room")
		}
	})
}
