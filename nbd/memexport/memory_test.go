package memexport_test

import (
	"testing"

	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/exporttest"
	"github.com/sluice-storage/sluice/nbd/memexport"
)

func TestConformance(t *testing.T) {
	exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
		m, err := memexport.New(size)
		if err != nil {
			tb.Fatal(err)
		}
		return m
	})
}

func TestSizes(t *testing.T) {
	if _, err := memexport.New(-1); err == nil {
		t.Error("a negative size was accepted")
	}
	empty, err := memexport.New(0)
	if err != nil || empty.Size() != 0 || empty.Close() != nil {
		t.Errorf("empty device: %v", err)
	}
}

// TestHugeDeviceIsSparse reserves far more than the machine has and uses both ends of it.
func TestHugeDeviceIsSparse(t *testing.T) {
	const size = 1 << 40
	m, err := memexport.New(size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx := t.Context()
	for _, off := range []int64{0, size - 1} {
		if err := m.WriteAt(ctx, []byte{1}, off, false); err != nil {
			t.Fatal(err)
		}
	}
	exts, err := m.Map(ctx, 0, size, 10, nil)
	if err != nil || len(exts) != 3 || exts[0].Hole || !exts[1].Hole || exts[2].Hole {
		t.Fatalf("map of a device with two bytes: %v, %v", exts, err)
	}
	if err := m.WriteZeroes(ctx, 0, size, nbd.ZeroFlags{Fast: true}); err != nil {
		t.Fatal(err)
	}
	exts, err = m.Map(ctx, 0, size, 10, nil)
	if err != nil || len(exts) != 1 || !exts[0].Zero {
		t.Fatalf("map after zeroing: %v, %v", exts, err)
	}
}
