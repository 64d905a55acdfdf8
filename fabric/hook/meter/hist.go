package meter

import (
	"math/bits"
	"time"
)

// Sizes is a histogram of sizes: element i counts those below 1<<i that are not below 1<<(i-1);
// element 0 those of nothing.
type Sizes [34]uint64

func (s *Sizes) count(n int) { s[min(bits.Len64(uint64(n)), len(s)-1)]++ }

func (s *Sizes) add(o *Sizes) {
	for i, v := range o {
		s[i] += v
	}
}

// Limit is the size that everything in element i is below.
func (s *Sizes) Limit(i int) int64 { return 1 << i }

// Total is the number of sizes.
func (s *Sizes) Total() uint64 { return sum(s[:]) }

// Quantile is a size that the given share of all is not above, up to the next power of two.
func (s *Sizes) Quantile(share float64) int64 {
	i := quantile(s[:], share)
	if i <= 0 {
		return 0
	}
	return s.Limit(i) - 1
}

// Times is a histogram of times: four elements for each power of two nanoseconds.
type Times [4 * 44]uint64

func (t *Times) count(d int64) { t[timeIndex(d)]++ }

// timeIndex is the element of a time. Below 4 ns each has its own; above, the two bits behind the
// highest choose one of four.
func timeIndex(d int64) int {
	if d < 4 {
		return int(max(d, 0))
	}
	high := bits.Len64(uint64(d)) - 1
	return min(4*(high-1)+int(d>>(high-2))&3, len(Times{})-1)
}

func (t *Times) add(o *Times) {
	for i, v := range o {
		t[i] += v
	}
}

// Limit is the time that everything in element i is below.
func (t *Times) Limit(i int) time.Duration {
	if i < 4 {
		return time.Duration(i + 1)
	}
	high := i/4 + 1
	return time.Duration(1)<<high + time.Duration(i%4+1)<<(high-2)
}

// Total is the number of times.
func (t *Times) Total() uint64 { return sum(t[:]) }

// Quantile is a time that the given share of all is below, a quarter too much at most.
func (t *Times) Quantile(share float64) time.Duration {
	i := quantile(t[:], share)
	if i < 0 {
		return 0
	}
	return t.Limit(i)
}

func sum(counts []uint64) uint64 {
	var n uint64
	for _, v := range counts {
		n += v
	}
	return n
}

// quantile is the first element up to which there is the given share of all; -1 if there is none.
func quantile(counts []uint64, share float64) int {
	total := sum(counts)
	if total == 0 {
		return -1
	}
	want := share * float64(total)
	var seen uint64
	for i, v := range counts {
		if seen += v; v > 0 && float64(seen) >= want {
			return i
		}
	}
	return len(counts) - 1
}
