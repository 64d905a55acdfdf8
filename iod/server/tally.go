package server

import "math/bits"

// tally counts clients by a small number that each has, and knows the smallest that any of them
// has.
type tally struct {
	count [64]int
	some  uint64 // numbers that a client has, by bit
}

// tallyMax is the largest number that is told apart.
const tallyMax = 63

func (t *tally) add(n int) {
	n = min(n, tallyMax)
	t.count[n]++
	t.some |= 1 << n
}

func (t *tally) remove(n int) {
	n = min(n, tallyMax)
	if t.count[n]--; t.count[n] == 0 {
		t.some &^= 1 << n
	}
}

// least is the smallest number of any; false when there is none.
func (t *tally) least() (int, bool) { return bits.TrailingZeros64(t.some), t.some != 0 }
