package array

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-storage/sluice/seg"
)

// From a view to requests.
//
// A leg is a box of elements at both of its ends: in the file and in memory, with a distance along
// each axis. It is brought into the order of the file: axes that are walked backwards are turned
// round at both ends, the axis with the largest distance in the file comes first, and axes that
// lie without gaps at both ends melt into one. What is left is a vector of the file, and for memory
// one of these:
//
//	dense    memory follows the file without gaps: one buffer
//	gather   rows are long: a buffer for each of them
//	stage    neither: through a buffer that is dense, and a copy by this process
//
// A read of elements that lie close to each other, as every second one, asks for what is between
// them, too, and leaves it in the stage: to name each element would cost more than to move it.
// Writes never do so: what lies between belongs to others.

type direction uint8

const (
	reading direction = iota
	writing
)

// Bounds of one call of the client, and of what this process holds for it.
const (
	// callPieces is how many pieces one call describes; a piece takes some 100 bytes while it runs.
	callPieces = 128 << 10

	// stageBytes is how much is staged at once.
	stageBytes = 8 << 20

	// A row that is gathered costs its description in the request, as a piece of 4 KiB costs its copy;
	// more than these many descriptions would need further requests.
	gatherRow  = 4 << 10
	gatherRows = 256
	gatherLong = 64 << 10 // as long as this in any number

	// sieveGap is the largest gap that a read moves rather than to describe what it lies between.
	sieveGap = 512
)

// axis is one dimension of a leg.
type axis struct{ n, file, mem int64 }

// leg is a box of blocks.
type leg struct {
	buf   []byte
	file  int64 // of the first block
	mem   int64 // of the first block, in buf
	block int64 // bytes
	axes  []axis
}

// newLeg pairs a view with memory that begins at mem in buf and has the given strides.
func newLeg(v View, buf []byte, mem int64, to []int64) leg {
	l := leg{buf: buf, file: v.off, mem: mem, block: v.a.header.Type.Bytes}
	for i, n := range v.shape {
		if n == 0 {
			l.block = 0
		}
		if n < 2 {
			continue
		}
		x := axis{n, v.strides[i], to[i]}
		if x.file < 0 {
			l.file += (n - 1) * x.file
			l.mem += (n - 1) * x.mem
			x.file, x.mem = -x.file, -x.mem
		}
		l.axes = append(l.axes, x)
	}
	if l.block == 0 {
		l.axes = nil
		return l
	}
	slices.SortStableFunc(l.axes, func(x, y axis) int { return cmp.Compare(y.file, x.file) })
	l.melt()
	return l
}

// melt joins axes that lie without gaps at both ends.
func (l *leg) melt() {
	for k := len(l.axes); k > 0 && l.axes[k-1].file == l.block && l.axes[k-1].mem == l.block; k-- {
		l.block *= l.axes[k-1].n
		l.axes = l.axes[:k-1]
	}
	for i := len(l.axes) - 2; i >= 0; i-- {
		x, y := l.axes[i], l.axes[i+1]
		if x.file == y.n*y.file && x.mem == y.n*y.mem {
			l.axes[i] = axis{x.n * y.n, y.file, y.mem}
			l.axes = slices.Delete(l.axes, i+1, i+2)
		}
	}
}

// count is how many blocks the leg has.
func (l *leg) count() int64 {
	n := int64(1)
	for _, x := range l.axes {
		n *= x.n
	}
	return n
}

// way is how a leg's memory is presented.
type way uint8

const (
	dense way = iota
	gather
	stage
	sieve // stage, with what lies between
)

func (l *leg) way(dir direction) way {
	if k := len(l.axes); dir == reading && k > 0 && l.block < gatherRow &&
		l.axes[k-1].file-l.block <= sieveGap && l.axes[k-1].file > l.block {
		return sieve
	}
	if l.isDense() {
		return dense
	}
	if l.block >= gatherLong || l.block >= gatherRow && l.count() <= gatherRows {
		return gather
	}
	return stage
}

func (l *leg) isDense() bool {
	next := l.block
	for i := len(l.axes) - 1; i >= 0; i-- {
		if l.axes[i].mem != next {
			return false
		}
		next *= l.axes[i].n
	}
	return true
}

// staged is how the leg lies in a stage: the distance of its axes there, and its length. What is
// sieved lies as in the file along its innermost axis.
func (l *leg) staged(w way) (distances []int64, length int64) {
	distances = make([]int64, len(l.axes))
	length = l.block
	for i := len(l.axes) - 1; i >= 0; i-- {
		distances[i] = length
		if i == len(l.axes)-1 && w == sieve {
			distances[i] = l.axes[i].file
			length = (l.axes[i].n-1)*l.axes[i].file + l.block
			continue
		}
		length *= l.axes[i].n
	}
	return distances, length
}

// vector is the leg in the file.
func (l *leg) vector(w way) seg.Vector {
	v := seg.Vector{Off: l.file, Block: l.block}
	axes := l.axes
	if w == sieve {
		inner := axes[len(axes)-1]
		axes = axes[:len(axes)-1]
		v.Block = (inner.n-1)*inner.file + l.block
	}
	for i := len(axes) - 1; i >= 0; i-- {
		x := axes[i]
		if k := len(v.Dims); k == 0 && x.file == v.Block {
			v.Block *= x.n // without a gap in the file, if not in memory
		} else if k > 0 && x.file == v.Dims[k-1].Count*v.Dims[k-1].Stride {
			v.Dims[k-1].Count *= x.n
		} else {
			v.Dims = append(v.Dims, seg.Dim{Count: x.n, Stride: x.file})
		}
	}
	slices.Reverse(v.Dims)
	return v
}

// fits tells whether the leg can be part of one call.
func (l *leg) fits(dir direction) bool {
	w := l.way(dir)
	v := l.vector(w)
	_, length := l.staged(w)
	return len(v.Dims) <= seg.MaxDims && seg.Strided(v).Pieces() <= callPieces &&
		(w < stage || length <= stageBytes)
}

// cut calls fn with parts of the leg that fit, in the order of the file.
func (l leg) cut(dir direction, fn func(leg) error) error {
	if l.block == 0 {
		return nil
	}
	if l.fits(dir) {
		return fn(l)
	}
	first := l.axes[0] // what does not fit has one
	part := func(at, n int64) leg {
		p := l
		p.file += at * first.file
		p.mem += at * first.mem
		p.axes = slices.Clone(l.axes)
		if p.axes[0].n = n; n == 1 {
			p.axes = p.axes[1:]
		}
		return p
	}
	each := first.n / 2
	for ; each > 1; each /= 2 {
		if p := part(0, each); p.fits(dir) {
			break
		}
	}
	each = max(each, 1)
	for at := int64(0); at < first.n; at += each {
		if err := part(at, min(each, first.n-at)).cut(dir, fn); err != nil {
			return err
		}
	}
	return nil
}

// move moves legs, as many in one call as its bounds allow. Their memory must not overlap.
func (a *Array) move(ctx context.Context, dir direction, legs []leg) error {
	c := call{file: a.file, dir: dir}
	for _, l := range legs {
		err := l.cut(dir, func(p leg) error {
			if !c.room(&p) {
				if err := c.run(ctx); err != nil {
					return err
				}
			}
			c.add(p)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return c.run(ctx)
}

// call is one call of the client.
type call struct {
	file File
	dir  direction

	bufs   [][]byte
	parts  []seg.Vector
	pieces int64
	bytes  int64

	scratch []byte // its staged legs, one behind the other; used again
	used    int64
	stages  []staging
}

// staging is a leg that goes through a part of the scratch memory.
type staging struct {
	leg leg
	way way
	at  int64
	n   int64
}

func (c *call) room(l *leg) bool {
	w := l.way(c.dir)
	if len(c.parts) == 0 {
		return true
	}
	if w >= stage {
		if _, n := l.staged(w); c.used+n > stageBytes {
			return false
		}
	}
	a := seg.Strided(l.vector(w))
	return c.pieces+a.Pieces() <= callPieces && c.bytes+a.Len() <= stageBytes
}

func (c *call) add(l leg) {
	w := l.way(c.dir)
	v := l.vector(w)
	c.parts = append(c.parts, v)
	c.pieces += seg.Strided(v).Pieces()
	c.bytes += seg.Strided(v).Len()
	switch w {
	case dense:
		n := l.block * l.count()
		c.bufs = append(c.bufs, l.buf[l.mem:l.mem+n:l.mem+n])
	case gather:
		l.each(func(mem int64) {
			c.bufs = append(c.bufs, l.buf[mem:mem+l.block:mem+l.block])
		})
	default:
		_, n := l.staged(w)
		c.stages = append(c.stages, staging{l, w, c.used, n})
		c.bufs = append(c.bufs, nil) // set when all of the scratch memory is known
		c.used += n
	}
}

// each visits the blocks in memory, in the order of the file.
func (l *leg) each(fn func(mem int64)) {
	var walk func(mem int64, axes []axis)
	walk = func(mem int64, axes []axis) {
		if len(axes) == 0 {
			fn(mem)
			return
		}
		for range axes[0].n {
			walk(mem, axes[1:])
			mem += axes[0].mem
		}
	}
	walk(l.mem, l.axes)
}

func (c *call) run(ctx context.Context) error {
	if len(c.parts) == 0 {
		return nil
	}
	if int64(len(c.scratch)) < c.used {
		c.scratch = make([]byte, c.used)
	}
	k := 0
	for i := range c.bufs {
		if c.bufs[i] == nil {
			s := &c.stages[k]
			c.bufs[i] = c.scratch[s.at : s.at+s.n : s.at+s.n]
			k++
		}
	}
	if c.dir == writing {
		c.copy()
	}
	var err error
	if len(c.parts) == 1 {
		err = c.list(ctx, c.bufs, seg.Strided(c.parts[0]))
	} else {
		err = c.sorted(ctx)
	}
	if err == nil && c.dir == reading {
		c.copy()
	}
	*c = call{file: c.file, dir: c.dir, scratch: c.scratch}
	return err
}

func (c *call) list(ctx context.Context, bufs [][]byte, a seg.Access) error {
	if c.dir == reading {
		_, err := c.file.ReadList(ctx, bufs, a)
		return whole(err)
	}
	_, err := c.file.WriteList(ctx, bufs, a)
	return err
}

// match is a piece of the file and the memory that belongs to it.
type match struct {
	off int64
	buf []byte
}

// sorted moves several parts as one list in the order of the file. The rows of neighbouring tiles
// lie between each other: in this order they are one row, and no server visits a place twice.
func (c *call) sorted(ctx context.Context) error {
	all := c.matches()
	slices.SortFunc(all, func(x, y match) int { return cmp.Compare(x.off, y.off) })
	var pieces []seg.Piece
	bufs := make([][]byte, len(all))
	for i, m := range all {
		pieces = seg.Join(pieces, seg.Piece{Off: m.off, Len: int64(len(m.buf))})
		bufs[i] = m.buf
	}
	if len(all) <= gatherRows || c.bytes >= gatherRow*int64(len(all)) {
		return c.list(ctx, bufs, seg.List(pieces))
	}
	stage := make([]byte, c.bytes)
	if c.dir == writing {
		at := 0
		for _, b := range bufs {
			at += copy(stage[at:], b)
		}
	}
	err := c.list(ctx, [][]byte{stage}, seg.List(pieces))
	if err == nil && c.dir == reading {
		for _, b := range bufs {
			stage = stage[copy(b, stage):]
		}
	}
	return err
}

// matches are the pieces of all parts, with their memory.
func (c *call) matches() []match {
	all := make([]match, 0, c.pieces)
	k, in := 0, int64(0) // where the stream is: a buffer, and a place in it
	for _, v := range c.parts {
		cursor := seg.Strided(v).Cursor()
		for left := cursor.Left(); left > 0; left = cursor.Left() {
			if in == int64(len(c.bufs[k])) {
				k, in = k+1, 0
				continue
			}
			p, _ := cursor.Next(min(left, int64(len(c.bufs[k]))-in))
			all = append(all, match{p.Off, c.bufs[k][in : in+p.Len]})
			in += p.Len
		}
	}
	return all
}

// copy moves what is staged between the scratch memory and where it belongs.
func (c *call) copy() {
	for i := range c.stages {
		s := &c.stages[i]
		distances, _ := s.leg.staged(s.way)
		s.leg.copy(c.dir, c.scratch[s.at:s.at+s.n], 0, distances, s.leg.mem, s.leg.axes)
	}
}

func (l *leg) copy(dir direction, staged []byte, at int64, distances []int64, mem int64,
	axes []axis) {
	if len(axes) == 0 {
		if dir == reading {
			copy(l.buf[mem:mem+l.block], staged[at:])
		} else {
			copy(staged[at:at+l.block], l.buf[mem:])
		}
		return
	}
	if len(axes) == 1 {
		l.row(dir, staged, at, distances[0], mem, axes[0])
		return
	}
	for range axes[0].n {
		l.copy(dir, staged, at, distances[1:], mem, axes[1:])
		at += distances[0]
		mem += axes[0].mem
	}
}

// row copies the innermost axis.
func (l *leg) row(dir direction, staged []byte, at, distance, mem int64, x axis) {
	n := l.block
	for range x.n {
		if dir == reading {
			copy(l.buf[mem:mem+n], staged[at:at+n])
		} else {
			copy(staged[at:at+n], l.buf[mem:mem+n])
		}
		at += distance
		mem += x.mem
	}
}
