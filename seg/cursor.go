package seg

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-storage/sluice/internal/invariant"
)

// Cursor walks the pieces of an access in stream order. It is a value: copying it makes a second,
// independent walk. The zero Cursor is at the end of the empty access.
type Cursor struct {
	a    Access
	i    int            // list, runs: index of the current one
	idx  [MaxDims]int64 // vector: index in each dimension; runs: idx[0] in the current one
	in   int64          // bytes of the current piece already taken
	done bool
}

// Cursor starts a walk.
func (a Access) Cursor() Cursor {
	c := Cursor{a: a}
	c.done = a.isV && (a.vec.Block == 0 || a.vec.blocks() == 0)
	return c
}

// Next takes at most max bytes (max > 0) from the current piece. ok is false at the end.
func (c *Cursor) Next(max int64) (p Piece, ok bool) {
	invariant.Check(max > 0, "seg.Cursor.Next without room")
	cur, ok := c.current()
	if !ok {
		return Piece{}, false
	}
	p = Piece{cur.Off + c.in, min(max, cur.Len-c.in)}
	c.in += p.Len
	if c.in == cur.Len {
		c.advance()
	}
	return p, true
}

// Left tells how many bytes are left of the current piece; 0 at the end.
func (c *Cursor) Left() int64 {
	cur, ok := c.current()
	if !ok {
		return 0
	}
	return cur.Len - c.in
}

// Skip moves n bytes along the stream, or to its end. In a vector it costs O(dims), not O(pieces).
func (c *Cursor) Skip(n int64) {
	if c.a.isV {
		c.skipVector(n)
		return
	}
	for n > 0 && c.i < len(c.a.runs) {
		n = c.skipRun(n, &c.a.runs[c.i])
	}
	for n > 0 {
		p, ok := c.Next(n)
		if !ok {
			return
		}
		n -= p.Len
	}
}

func (c *Cursor) skipVector(n int64) {
	if c.done || n <= 0 {
		return
	}
	v := &c.a.vec
	n += c.in
	blocks, in := n/v.Block, n%v.Block
	for d := len(v.Dims) - 1; d >= 0 && blocks > 0; d-- {
		sum := c.idx[d] + blocks
		c.idx[d] = sum % v.Dims[d].Count
		blocks = sum / v.Dims[d].Count
	}
	c.in = in
	c.done = blocks > 0
}

// skipRun moves along one run and returns how many bytes are left to go behind it.
func (c *Cursor) skipRun(n int64, r *Run) int64 {
	rest := r.Len*(r.Count-c.idx[0]) - c.in
	if n >= rest {
		c.i, c.idx[0], c.in = c.i+1, 0, 0
		return n - rest
	}
	n += c.in
	c.idx[0] += n / r.Len
	c.in = n % r.Len
	return 0
}

func (c *Cursor) current() (Piece, bool) {
	if c.a.isV {
		if c.done {
			return Piece{}, false
		}
		v := &c.a.vec
		off := v.Off
		for d := range v.Dims {
			off += c.idx[d] * v.Dims[d].Stride
		}
		return Piece{off, v.Block}, true
	}
	if c.a.runs != nil {
		for c.i < len(c.a.runs) && c.a.runs[c.i].Len == 0 {
			c.i++
		}
		if c.i >= len(c.a.runs) {
			return Piece{}, false
		}
		r := &c.a.runs[c.i]
		return Piece{r.Off + c.idx[0]*r.Stride, r.Len}, true
	}
	for c.i < len(c.a.list) && c.a.list[c.i].Len == 0 {
		c.i++ // empty pieces are allowed and mean nothing
	}
	if c.i >= len(c.a.list) {
		return Piece{}, false
	}
	return c.a.list[c.i], true
}

func (c *Cursor) advance() {
	c.in = 0
	if c.a.runs != nil {
		if c.idx[0]++; c.idx[0] == c.a.runs[c.i].Count {
			c.i, c.idx[0] = c.i+1, 0
		}
		return
	}
	if !c.a.isV {
		c.i++
		return
	}
	for d := len(c.a.vec.Dims) - 1; d >= 0; d-- {
		if c.idx[d]++; c.idx[d] < c.a.vec.Dims[d].Count {
			return
		}
		c.idx[d] = 0
	}
	c.done = true
}

// Zip walks two accesses side by side along their streams and calls fn with pieces of equal length
// until one of them ends or fn returns false.
func Zip(a, b Access, fn func(pa, pb Piece) bool) {
	ca, cb := a.Cursor(), b.Cursor()
	for {
		n := min(ca.Left(), cb.Left())
		if n == 0 {
			return
		}
		pa, _ := ca.Next(n)
		pb, _ := cb.Next(n)
		if !fn(pa, pb) {
			return
		}
	}
}

// Sub is the part of an access that holds n bytes of its stream from pos on. A single piece stays a
// single piece; anything else becomes a list.
func (a Access) Sub(pos, n int64) Access {
	c := a.Cursor()
	c.Skip(pos)
	var list []Piece
	for n > 0 {
		p, ok := c.Next(n)
		if !ok {
			break
		}
		n -= p.Len
		list = Join(list, p)
	}
	if len(list) == 1 {
		return Contig(list[0].Off, list[0].Len)
	}
	return List(list)
}

// Join appends p to list and melts it into the last piece where the two touch in order.
func Join(list []Piece, p Piece) []Piece {
	if p.Len == 0 {
		return list
	}
	if n := len(list); n > 0 && list[n-1].End() == p.Off {
		list[n-1].Len += p.Len
		return list
	}
	return append(list, p)
}

// Shift is the access with all offsets moved by so much.
func (a Access) Shift(by int64) Access {
	a.vec.Off += by
	a.list, a.runs = slices.Clone(a.list), slices.Clone(a.runs)
	for i := range a.list {
		a.list[i].Off += by
	}
	for i := range a.runs {
		a.runs[i].Off += by
	}
	return a
}

// Overlaps tells whether a byte is meant twice. A vector whose dimensions do not reach into each
// other is known at a glance; what cannot be told that way is expanded and sorted, so that the
// access must have been validated against a bound of pieces that fit into memory.
func (a Access) Overlaps() bool {
	if a.isV && a.vec.apart() {
		return false
	}
	var end int64
	for c := a.Cursor(); ; {
		p, ok := c.Next(math.MaxInt64)
		if !ok {
			return false
		}
		if p.Off < end {
			return a.overlapsSorted()
		}
		end = p.End()
	}
}

// apart tells whether each repetition begins behind all that the smaller ones mean.
func (v *Vector) apart() bool {
	dims := slices.Clone(v.Dims)
	slices.SortFunc(dims, func(x, y Dim) int { return cmp.Compare(x.Stride, y.Stride) })
	extent := v.Block
	for _, d := range dims {
		if d.Count > 1 && d.Stride < extent {
			return false
		}
		extent += max(d.Count-1, 0) * d.Stride
	}
	return true
}

func (a Access) overlapsSorted() bool {
	all := make([]Piece, 0, a.Pieces())
	for c := a.Cursor(); ; {
		p, ok := c.Next(math.MaxInt64)
		if !ok {
			break
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y Piece) int { return cmp.Compare(x.Off, y.Off) })
	for i := 1; i < len(all); i++ {
		if all[i].Off < all[i-1].End() {
			return true
		}
	}
	return false
}
