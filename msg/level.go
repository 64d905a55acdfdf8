package msg

import "math/bits"

// priority chooses between levels of which some have somebody waiting. The highest goes first; but
// while a level waits, at most burst are taken from levels above it, then one from it. With several
// levels kept waiting that long the lowest comes first, so the bound for one that waits is
// burst + the number of levels.
type priority struct {
	burst  int
	passed [MaxLevels]int
}

// levels is a set of levels, by bit.
type levels uint8

func (s levels) has(l int) bool { return s&(1<<l) != 0 }

// next is the level whose turn it is. waiting must not be empty.
func (p *priority) next(waiting levels) int {
	top := bits.Len8(uint8(waiting)) - 1
	for l := range top {
		if waiting.has(l) && p.passed[l] >= p.burst {
			return l
		}
	}
	return top
}

// took is told that one of level was taken while these waited.
func (p *priority) took(level int, waiting levels) {
	p.passed[level] = 0
	for l := range level {
		if waiting.has(l) {
			p.passed[l]++
		} else {
			p.passed[l] = 0
		}
	}
}
