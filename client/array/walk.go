package array

import "slices"

// walk guesses from the tiles that were asked for which ones come next. It does no I/O and is not
// safe for concurrent use.
//
// Two steps that are alike make a walk. Where it leaves the grid along an axis it goes on where
// that axis began, one line further along the axis that moved when the last line ended; before the
// first line has ended, along the next slower axis, as most loops are nested.
type walk struct {
	last  []int64
	dir   []int64 // the last step
	line  []int64 // the last step from one line to the next; nil: none was seen
	alike bool    // there were two such steps
}

// step takes note of a tile and returns the next ones, at most n.
func (w *walk) step(at, grid []int64, n int) [][]int64 {
	if w.last == nil {
		w.last = slices.Clone(at)
		return nil
	}
	d := make([]int64, len(at))
	for i := range d {
		d[i] = at[i] - w.last[i]
	}
	copy(w.last, at)
	switch {
	case !slices.ContainsFunc(d, func(x int64) bool { return x != 0 }):
		return nil // the same tile once more
	case w.dir != nil && slices.Equal(d, w.dir):
		w.alike = true
	case w.alike && w.turned(d):
		w.line = w.lineStep(d)
	default:
		w.dir, w.alike, w.line = d, false, nil
	}
	if !w.alike {
		return nil
	}
	return w.predict(at, grid, n)
}

// turned tells whether a step goes back along the axis of the walk and forward along another: a new
// line.
func (w *walk) turned(d []int64) bool {
	back, other := false, false
	for i, x := range d {
		switch {
		case w.dir[i] != 0:
			back = back || x*w.dir[i] <= 0
		case x != 0:
			other = true
		}
	}
	return back && other
}

// lineStep is the part of a turn that leads to the next line.
func (w *walk) lineStep(d []int64) []int64 {
	line := make([]int64, len(d))
	for i, x := range d {
		if w.dir[i] == 0 {
			line[i] = x
		}
	}
	return line
}

// predict follows the walk from at.
func (w *walk) predict(at, grid []int64, n int) [][]int64 {
	var out [][]int64
	cur := slices.Clone(at)
	for range n {
		next := make([]int64, len(cur))
		for i := range cur {
			next[i] = cur[i] + w.dir[i]
		}
		if !inside(next, grid) {
			if next = w.nextLine(cur, grid); next == nil {
				break
			}
		}
		out = append(out, next)
		cur = slices.Clone(next)
	}
	return out
}

// nextLine is where the walk goes on when a line has ended; nil if nothing is known or left.
func (w *walk) nextLine(cur, grid []int64) []int64 {
	next := slices.Clone(cur)
	axis := -1
	for i, s := range w.dir {
		switch {
		case s > 0:
			next[i] %= s // where a walk of this step began
			axis = i
		case s < 0:
			next[i] = grid[i] - 1 - (grid[i]-1-next[i])%-s
			axis = i
		}
	}
	if w.line == nil {
		return w.slower(next, grid, axis)
	}
	for i, s := range w.line {
		next[i] += s
	}
	if !inside(next, grid) {
		return nil
	}
	return next
}

// slower steps along the axis before the walk's own, as nested loops do.
func (w *walk) slower(next, grid []int64, axis int) []int64 {
	if axis < 1 || w.dir[axis-1] != 0 {
		return nil
	}
	if w.dir[axis] > 0 {
		next[axis-1]++
	} else {
		next[axis-1]--
	}
	if !inside(next, grid) {
		return nil
	}
	return next
}

func inside(at, grid []int64) bool {
	for i, k := range at {
		if k < 0 || k >= grid[i] {
			return false
		}
	}
	return true
}
