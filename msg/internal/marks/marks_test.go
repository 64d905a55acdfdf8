package marks

import (
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

func TestRoundTrip(t *testing.T) {
	for _, m := range []Marks{{}, {OneWay, 3, 1}, {0, 7, 2}} {
		if got, err := Parse(m.Pack()); err != nil || got != m {
			t.Errorf("%+v became %+v, %v", m, got, err)
		}
	}
	for _, v := range []uint32{3, 0x00080000, 0xff000000, 1 << 8} {
		if _, err := Parse(v); errs.KindOf(err) != errs.Protocol {
			t.Errorf("%08x: %v", v, err)
		}
	}
}
