package seg

import "github.com/sluice-storage/sluice/internal/invariant"

// Cursor walks the pieces of an access in stream order. It is a value: copying it makes a second,
// independent walk. The zero Cursor is at the end of the empty access.
type Cursor struct {
	a    Access
	i    int            // list: index of the current piece
	idx  [MaxDims]int64 // vector: index in each dimension
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
