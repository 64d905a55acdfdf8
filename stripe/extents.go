package stripe

// Extents collects the answer of Mapper.Map: the engine names its data, and what is reserved, in
// ascending order, the rest of the range is holes. Neighbours of one kind flow together.
type Extents struct {
	at, end int64 // what is not covered yet
	max     int
	list    []Extent
}

// NewExtents starts an answer about [off, off+length) with at most max extents.
func NewExtents(off, length int64, max int) *Extents {
	return &Extents{at: off, end: off + length, max: max}
}

// Data says that [off, off+length) is data; parts outside of the range, or before what was named
// already, do not count. It returns false when more would not change the answer.
func (x *Extents) Data(off, length int64) bool { return x.name(off, length, Extent{}) }

// Reserved says that [off, off+length) is a hole that has its space; otherwise as Data.
func (x *Extents) Reserved(off, length int64) bool {
	return x.name(off, length, Extent{Hole: true, Reserved: true})
}

func (x *Extents) name(off, length int64, kind Extent) bool {
	lo, hi := max(off, x.at), min(off+length, x.end)
	if lo < hi {
		x.add(lo-x.at, Extent{Hole: true})
		x.add(hi-lo, kind)
	}
	return x.at < x.end && len(x.list) <= x.max
}

// Finish covers what is left with a hole and returns the extents.
func (x *Extents) Finish() []Extent {
	x.add(x.end-x.at, Extent{Hole: true})
	return x.list[:min(len(x.list), max(x.max, 0))]
}

func (x *Extents) add(length int64, kind Extent) {
	if length <= 0 {
		return
	}
	if last := len(x.list) - 1; last >= 0 && x.list[last].Same(kind) {
		x.list[last].Len += length
	} else {
		kind.Off, kind.Len = x.at, length
		x.list = append(x.list, kind)
	}
	x.at += length
}

// Same tells whether two extents are of one kind.
func (e Extent) Same(other Extent) bool {
	return e.Hole == other.Hole && e.Reserved == other.Reserved
}
