package regcache

import "slices"

// pageBytes is the unit of costs and bounds. A host with larger pages is charged less than it
// pins by at most a page at either end of a registration.
const pageBytes = 4096

// extent is a range of addresses. It only compares: memory is reached through slices.
type extent struct{ lo, hi uintptr }

func (e extent) covers(other extent) bool { return e.lo <= other.lo && other.hi <= e.hi }

// pages is how many pages the extent touches.
func (e extent) pages() uintptr {
	return (e.hi+pageBytes-1)/pageBytes - e.lo/pageBytes
}

// bytes is the length of the pages that the extent touches.
func (e extent) bytes() int64 { return int64(e.pages()) * pageBytes }

// gapTo is how many pages lie between the extent and a later one and are touched by neither.
func (e extent) gapTo(next extent) uintptr {
	from, to := (e.hi+pageBytes-1)/pageBytes, next.lo/pageBytes
	if to <= from {
		return 0
	}
	return to - from
}

// index finds the entry that covers an extent. None of its entries covers another of them, so that
// sorted by their beginnings they are sorted by their ends as well: the last one that begins early
// enough is the only one that can cover, and one binary search finds it.
type index struct{ all []*entry }

// after is the place of the first entry that begins behind lo.
func (x *index) after(lo uintptr) int {
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

// find returns what covers e; nil for nothing.
func (x *index) find(e extent) *entry {
	i := x.after(e.lo)
	if i == 0 || x.all[i-1].hi < e.hi {
		return nil
	}
	return x.all[i-1]
}

// insert adds an entry, unless one is there that covers it, and takes out those that it covers.
func (x *index) insert(e *entry) (covered []*entry, ok bool) {
	if x.find(e.extent) != nil {
		return nil, false
	}
	from := x.after(e.lo)
	if from > 0 && x.all[from-1].lo == e.lo {
		from--
	}
	to := from
	for to < len(x.all) && x.all[to].hi <= e.hi {
		covered = append(covered, x.all[to])
		to++
	}
	x.all = slices.Replace(x.all, from, to, e)
	return covered, true
}

// remove takes out an entry. It tells whether it was there.
func (x *index) remove(e *entry) bool {
	i := x.after(e.lo)
	if i == 0 || x.all[i-1] != e {
		return false
	}
	x.all = slices.Delete(x.all, i-1, i)
	return true
}
