package regcache

import "slices"

// pageBytes is the unit of costs and bounds. A host with larger pages is charged less than it
// pins by at most a page at either end of a registration.
const pageBytes = 4096

// extent is a range of addresses. It only compares: memory is reached through slices.
type extent struct{ lo, hi uintptr }

func (e extent) covers(other extent) bool { return e.lo <= other.lo && other.hi <= e.hi }

func (e extent) overlaps(other extent) bool { return e.lo < other.hi && other.lo < e.hi }

// pages is how many pages the extent touches.
func (e extent) pages() uintptr {
	return (e.hi+pageBytes-1)/pageBytes - e.lo/pageBytes
}

// gapTo is how many pages lie between the extent and a later one and are touched by neither.
func (e extent) gapTo(next extent) uintptr {
	from, to := (e.hi+pageBytes-1)/pageBytes, next.lo/pageBytes
	if to <= from {
		return 0
	}
	return to - from
}

// index finds the extent that covers another one. None of its extents covers another of them, so
// that sorted by their beginnings they are sorted by their ends as well: the last one that begins
// early enough is the only one that can cover, and one binary search finds it.
type index[T any] struct{ all []slot[T] }

type slot[T any] struct {
	extent
	v T
}

// after is the place of the first slot that begins behind lo.
func (x *index[T]) after(lo uintptr) int {
	from, to := 0, len(x.all)
	for from < to {
		mid := int(uint(from+to) / 2)
		if x.all[mid].lo > lo {
			to = mid
		} else {
			from = mid + 1
		}
	}
	return from
}

// find returns what covers e.
func (x *index[T]) find(e extent) (v T, ok bool) {
	i := x.after(e.lo)
	if i == 0 || x.all[i-1].hi < e.hi {
		return v, false
	}
	return x.all[i-1].v, true
}

// insert adds an extent, unless one is there that covers it, and takes out those that it covers.
func (x *index[T]) insert(e extent, v T) (covered []T, ok bool) {
	if _, there := x.find(e); there {
		return nil, false
	}
	from := x.after(e.lo)
	if from > 0 && x.all[from-1].lo == e.lo {
		from--
	}
	to := from
	for to < len(x.all) && x.all[to].hi <= e.hi {
		covered = append(covered, x.all[to].v)
		to++
	}
	x.all = slices.Replace(x.all, from, to, slot[T]{e, v})
	return covered, true
}

// remove takes out exactly e. It tells whether it was there.
func (x *index[T]) remove(e extent) bool {
	i := x.after(e.lo)
	if i == 0 || x.all[i-1].extent != e {
		return false
	}
	x.all = slices.Delete(x.all, i-1, i)
	return true
}

// overlapping is the part of the index that has bytes in common with e.
func (x *index[T]) overlapping(e extent) []slot[T] {
	to := x.after(e.hi - 1)
	from := to
	for from > 0 && x.all[from-1].hi > e.lo {
		from--
	}
	return x.all[from:to]
}
