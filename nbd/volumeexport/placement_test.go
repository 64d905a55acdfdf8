package volumeexport

import (
	"fmt"
	"testing"

	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/nbd"
)

func TestPlacement(t *testing.T) {
	three := &layout.Layout{Unit: 64 << 10, Servers: []uint32{7, 5, 9}}
	one := &layout.Layout{Unit: 64 << 10, Servers: []uint32{7}}
	for _, q := range []struct {
		l           *layout.Layout
		off, length int64
		most        int
		want        []nbd.Status
	}{
		{three, 0, 200 << 10, 10, []nbd.Status{{Len: 65536, Flags: 0x700}, {Len: 65536, Flags: 0x501},
			{Len: 65536, Flags: 0x902}, {Len: 65536, Flags: 0x700}}},
		{three, 100_000, 1, 10, []nbd.Status{{Len: 31072, Flags: 0x501}}},
		{three, 0, 1 << 40, 2, []nbd.Status{{Len: 65536, Flags: 0x700}, {Len: 65536, Flags: 0x501}}},
		{one, 5, 1 << 40, 2, []nbd.Status{{Len: 1 << 40, Flags: 0x700}}},
	} {
		if got := placement(q.l, q.off, q.length, q.most, nil); fmt.Sprint(got) != fmt.Sprint(q.want) {
			t.Errorf("%d+%d: %v, want %v", q.off, q.length, got, q.want)
		}
	}
}
