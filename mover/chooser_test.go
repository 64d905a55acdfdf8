package mover

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
)

// TestChooserFollowsWhatItMeasures: whatever the default is, the faster method is used, mostly, and
// a change of the host is found out.
func TestChooserFollowsWhatItMeasures(t *testing.T) {
	caps := &fabric.Caps{Provider: "tcp", PackBelow: 4096}
	var c Chooser
	for _, put := range []bool{true, false} {
		for _, length := range []int64{1024, 16384} {
			s := Shape{Put: put, Fragments: 64, Bytes: 64 * length}
			for _, cost := range []map[Method]time.Duration{
				{Gather: time.Second, Pack: time.Millisecond * 300},
				{Gather: time.Millisecond * 300, Pack: time.Second},
			} {
				var picked [3]int
				for i := range 2000 {
					m, why := c.Choose(caps, s)
					if why == "" {
						t.Fatal("a choice without a reason")
					}
					c.Took(caps, s, m, cost[m])
					if i >= 1000 {
						picked[m]++
					}
				}
				best := Gather
				if cost[Pack] < cost[Gather] {
					best = Pack
				}
				if rest := picked[other(best)]; rest == 0 || rest > 1000/retry+2 {
					t.Errorf("put %v, pieces of %d: of 1000 choices %d are for the slower method", put,
						length, rest)
				}
			}
		}
	}
}

// TestChooserSettled: far from the crossover, and with few pieces, nothing is tried.
func TestChooserSettled(t *testing.T) {
	caps := &fabric.Caps{Provider: "tcp", PackBelow: 4096}
	var c Chooser
	for _, test := range []struct {
		s    Shape
		want Method
		why  string
	}{
		{Shape{Fragments: 2, Bytes: 64}, Gather, "few"},
		{Shape{Fragments: 1000, Bytes: 24000}, Pack, "far below"},
		{Shape{Fragments: 100, Bytes: 100 << 20}, Gather, "far above"},
	} {
		for range 100 {
			m, why := c.Choose(caps, test.s)
			c.Took(caps, test.s, m, time.Hour)
			if m != test.want || !strings.Contains(why, test.why) {
				t.Fatalf("%+v: %v, %s", test.s, m, why)
			}
		}
	}
	if len(c.cells) != 0 {
		t.Error("it keeps what it does not need")
	}
	plain := &fabric.Caps{Provider: "sim"}
	if m, _ := c.Choose(plain, Shape{Fragments: 1000, Bytes: 1000}); m != Gather {
		t.Error("packed where the provider says never")
	}
}
