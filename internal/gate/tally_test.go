package gate

import (
	"testing"

	"pgregory.net/rapid"
)

func TestTally(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var y tally
		var all []int // the plain way
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if k := len(all); k > 0 && rapid.Bool().Draw(t, "remove") {
				i := rapid.IntRange(0, k-1).Draw(t, "which")
				y.remove(all[i])
				all[i] = all[k-1]
				all = all[:k-1]
			} else {
				n := rapid.IntRange(0, 100).Draw(t, "number")
				y.add(n)
				all = append(all, n)
			}
			want := 1 << 30
			for _, n := range all {
				want = min(want, n, tallyMax)
			}
			if len(all) > 0 && y.least() != want {
				t.Fatalf("least of %v is %d", all, y.least())
			}
		}
	})
}
