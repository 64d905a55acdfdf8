package exporttest

import (
	"bytes"
	"context"
	"testing"

	"github.com/sluice-storage/sluice/nbd"
)

// testBatches: what is written and read together is as what is written and read one by one, to the
// last byte of the export.
func testBatches(t *testing.T, open Open) {
	const size = 3<<20 + 512
	exp := open(t, size)
	defer exp.Close()
	b := nbd.ExtrasOf(exp).Batcher
	if b == nil {
		t.Skip("it takes requests one by one")
	}
	ctx := context.Background()
	want := make([]byte, size)
	spans := func(seed uint64) (list []nbd.Span) {
		for i := range int64(15) {
			off, length := (i*7%15)*200_704, 8192 // whole pages
			if i%2 == 1 {
				off, length = off+i, length-100*int(i)
			}
			list = append(list, nbd.Span{Off: off, Data: pattern(seed+uint64(i), length)})
		}
		return append(list, nbd.Span{Off: size - 700, Data: pattern(seed, 700)})
	}
	for seed := range uint64(3) {
		list := spans(seed * 100)
		if err := b.WriteMany(ctx, list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			copy(want[s.Off:], s.Data)
		}
		got := spans(0)
		for i := range got {
			clear(got[i].Data)
		}
		if err := b.ReadMany(ctx, got); err != nil {
			t.Fatal(err)
		}
		for _, s := range got {
			if !bytes.Equal(s.Data, want[s.Off:s.Off+int64(len(s.Data))]) {
				t.Errorf("what was read at %d is not what was written", s.Off)
			}
		}
	}
	got := make([]byte, size)
	if err := exp.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read as a whole it differs: %v", err)
	}
}
