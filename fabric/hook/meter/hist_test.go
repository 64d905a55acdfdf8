package meter

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every time falls into the element whose limits are around it, within a quarter.
func TestTimeIndex(t *testing.T) {
	var h Times
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.Int64Range(0, 1<<44).Draw(t, "ns")
		i := timeIndex(d)
		low := time.Duration(0)
		if i > 0 {
			low = h.Limit(i - 1)
		}
		if high := h.Limit(i); time.Duration(d) < low || time.Duration(d) >= high ||
			d >= 4 && float64(high) > 1.2501*float64(low) {
			t.Fatalf("%d ns is element %d: %d to %d", d, i, low, high)
		}
	})
	if i := timeIndex(1 << 62); i != len(h)-1 {
		t.Fatalf("an age is element %d", i)
	}
	if i := timeIndex(-5); i != 0 {
		t.Fatalf("a time before its start is element %d", i)
	}
}

func TestSizes(t *testing.T) {
	var h Sizes
	for _, n := range []int{0, 1, 2, 3, 4, 4095, 4096, 1 << 40} {
		h.count(n)
	}
	want := Sizes{0: 1, 1: 1, 2: 2, 3: 1, 12: 1, 13: 1, len(h) - 1: 1}
	if h != want {
		t.Fatalf("%v", h)
	}
	if h.Total() != 8 || h.Limit(12) != 4096 {
		t.Fatalf("%d sizes, %d", h.Total(), h.Limit(12))
	}
}

func TestQuantiles(t *testing.T) {
	var sizes Sizes
	var times Times
	if sizes.Quantile(0.5) != 0 || times.Quantile(0.5) != 0 {
		t.Fatal("quantiles of nothing")
	}
	for i := range 100 {
		sizes.count(1000)
		times.count(1000)
		if i == 0 {
			sizes.count(1 << 20)
			times.count(int64(time.Second))
		}
	}
	if q := sizes.Quantile(0.5); q != 1023 {
		t.Errorf("half are at most %d", q)
	}
	if q := sizes.Quantile(1); q != 1<<21-1 {
		t.Errorf("all are at most %d", q)
	}
	if q := times.Quantile(0.5); q < 1000 || q > 1250 {
		t.Errorf("half take less than %v", q)
	}
	if q := times.Quantile(1); q < time.Second || q > 5*time.Second/4 {
		t.Errorf("all take less than %v", q)
	}
}
