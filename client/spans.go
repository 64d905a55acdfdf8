package client

import (
	"slices"

	"github.com/sluice-storage/sluice/meta"
)

// span is a range of bytes that an owner has locked; both ends belong to it. A type of 0 means that
// it is not locked.
type span struct {
	start, end int64
	typ        meta.LockType
	pid        uint32
}

// spans are the locks of one owner in one file, by their place. They do not overlap, and those that
// touch have different types.
type spans []span

// set returns the spans with a range replaced. It looks at all of them: owners have few.
func (s spans) set(n span) spans {
	out := make(spans, 0, len(s)+2)
	for _, x := range s {
		switch {
		case x.end < n.start || n.end < x.start:
			touches := n.start > 0 && x.end == n.start-1 || x.start > 0 && n.end == x.start-1
			if touches && x.typ == n.typ {
				n.start, n.end = min(n.start, x.start), max(n.end, x.end)
				continue
			}
			out = append(out, x)
		case x.typ == n.typ:
			n.start, n.end = min(n.start, x.start), max(n.end, x.end)
		default:
			if x.start < n.start {
				out = append(out, span{x.start, n.start - 1, x.typ, x.pid})
			}
			if x.end > n.end {
				out = append(out, span{n.end + 1, x.end, x.typ, x.pid})
			}
		}
	}
	if n.typ != 0 {
		i, _ := slices.BinarySearchFunc(out, n, func(a, b span) int {
			if a.start < b.start {
				return -1
			}
			return 1
		})
		out = slices.Insert(out, i, n)
	}
	return out
}

// within cuts a range into what is locked of it, and what is not.
func (s spans) within(start, end int64) (out spans) {
	next := start
	for _, x := range s {
		if x.end < start || x.start > end {
			continue
		}
		if x.start > next {
			out = append(out, span{start: next, end: x.start - 1})
		}
		out = append(out, span{max(x.start, start), min(x.end, end), x.typ, x.pid})
		if x.end >= end {
			return out
		}
		next = x.end + 1
	}
	return append(out, span{start: next, end: end})
}
