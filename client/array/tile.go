package array

import (
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
)

// Edge says what ghost cells are that lie outside of the array.
type Edge uint8

const (
	Clip Edge = iota // nothing: reads leave their memory as it is
	Wrap             // cells of the other end: the array is periodic
)

// TileOptions of Array.Tiles.
type TileOptions struct {
	// Shape of a tile, without ghost cells. At least 1 along each axis. Those at the end of an axis
	// are smaller where it is no multiple.
	Shape []int64

	// Ghost is how many cells of the neighbours a tile is read with, at both ends of each axis. Not
	// longer than the axis. Default: none.
	Ghost []int64

	// Edge is what lies outside of the array. Default Clip.
	Edge Edge

	// Order of the tiles in memory. Default: as in the file.
	Order Order
}

// Tiles cut an array into boxes, which are numbered along each axis from 0. Safe for concurrent
// use.
//
//	| g |   tile 0  | tile 1  | tile 2 | g |     an axis, and with ghost cells:
//	    |  tile 0   g |
//	           | g  tile 1   g |
//
// In memory a tile has the shape that Box tells, ghost cells included also where there is nothing
// (Clip), so that all tiles look alike to a program.
type Tiles struct {
	a      *Array
	opts   TileOptions
	grid   []int64
	ghosts bool
}

// tileLegs bounds into how many boxes a tile falls apart that wraps round several axes.
const tileLegs = 4096

// Tiles cuts the array.
func (a *Array) Tiles(opts TileOptions) (*Tiles, error) {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "array.Tiles", "", format, args...)
	}
	shape := a.header.Shape
	if len(opts.Shape) != len(shape) {
		return nil, bad("a tile of %d axes of an array of %d", len(opts.Shape), len(shape))
	}
	if opts.Ghost == nil {
		opts.Ghost = make([]int64, len(shape))
	}
	if len(opts.Ghost) != len(shape) {
		return nil, bad("ghost cells along %d axes of an array of %d", len(opts.Ghost), len(shape))
	}
	t := &Tiles{a: a, opts: opts, grid: make([]int64, len(shape))}
	t.opts.Shape, t.opts.Ghost = slices.Clone(opts.Shape), slices.Clone(opts.Ghost)
	t.opts.Order = a.order(opts.Order)
	legs := 1
	for i, n := range shape {
		size, ghost := opts.Shape[i], opts.Ghost[i]
		if size < 1 || ghost < 0 || ghost > n {
			return nil, bad("axis %d: tiles of %d, %d ghost cells, length %d", i, size, ghost, n)
		}
		t.opts.Shape[i] = min(size, max(n, 1))
		t.grid[i] = (n + size - 1) / max(size, 1)
		if size > n {
			t.grid[i] = min(n, 1)
		}
		if ghost > 0 {
			t.ghosts = true
			if legs *= 4; opts.Edge == Wrap && legs > tileLegs {
				return nil, bad("ghost cells that wrap round more than six axes")
			}
		}
	}
	if _, err := arrayBytes(a.header.Type.Bytes, t.largest()); err != nil {
		return nil, err
	}
	return t, nil
}

// largest is the shape of a tile that is not cut, with ghost cells.
func (t *Tiles) largest() []int64 {
	out := make([]int64, len(t.grid))
	for i := range out {
		out[i] = t.opts.Shape[i] + 2*t.opts.Ghost[i]
	}
	return out
}

// Grid is how many tiles there are along each axis.
func (t *Tiles) Grid() []int64 { return slices.Clone(t.grid) }

// Box is a part of an array: from Low to High (not included) along each axis. With ghost cells it
// may begin before 0 and end behind the array.
type Box struct{ Low, High []int64 }

// Shape is the length of the box along each axis.
func (b Box) Shape() []int64 {
	out := make([]int64, len(b.Low))
	for i := range out {
		out[i] = b.High[i] - b.Low[i]
	}
	return out
}

// Box is where a tile lies, with its ghost cells, and core without them.
func (t *Tiles) Box(at ...int64) (box, core Box, err error) {
	if len(at) != len(t.grid) {
		return box, core, errs.Newf(errs.Invalid, "array.Tile", "", "%d numbers for %d axes", len(at),
			len(t.grid))
	}
	for i, k := range at {
		if k < 0 || k >= t.grid[i] {
			return box, core, errs.Newf(errs.Invalid, "array.Tile", "", "tile %d of %d along axis %d",
				k, t.grid[i], i)
		}
		low := k * t.opts.Shape[i]
		high := min(low+t.opts.Shape[i], t.a.header.Shape[i])
		core.Low, core.High = append(core.Low, low), append(core.High, high)
		ghost := t.opts.Ghost[i]
		box.Low, box.High = append(box.Low, low-ghost), append(box.High, high+ghost)
	}
	return box, core, nil
}

// Bytes is how much memory a tile needs.
func (t *Tiles) Bytes(at ...int64) (int64, error) {
	box, _, err := t.Box(at...)
	if err != nil {
		return 0, err
	}
	return arrayBytes(t.a.header.Type.Bytes, box.Shape())
}

// Read reads a tile with its ghost cells, in one request to each server. p is as long as Bytes
// says.
func (t *Tiles) Read(ctx context.Context, p []byte, at ...int64) error {
	legs, err := t.legs(nil, "array.Tiles.Read", p, at)
	if err != nil {
		return err
	}
	return errs.Wrap("array.Tiles.Read", "", t.a.move(ctx, reading, legs))
}

// Write writes a tile without its ghost cells, which belong to its neighbours. p is the memory that
// Read takes.
func (t *Tiles) Write(ctx context.Context, p []byte, at ...int64) error {
	box, core, err := t.check("array.Tiles.Write", p, at)
	if err != nil {
		return err
	}
	to := t.strides(box)
	l := t.leg(p, core.Low, core.Shape(), to, offset(to, t.opts.Ghost))
	return errs.Wrap("array.Tiles.Write", "", t.a.move(ctx, writing, []leg{l}))
}

// check compares the memory with the tile.
func (t *Tiles) check(op string, p []byte, at []int64) (box, core Box, err error) {
	box, core, err = t.Box(at...)
	if err != nil {
		return box, core, err
	}
	n, err := arrayBytes(t.a.header.Type.Bytes, box.Shape())
	if err == nil && int64(len(p)) != n {
		err = errs.Newf(errs.Invalid, op, "", "%d bytes of memory for a tile of %d", len(p), n)
	}
	return box, core, err
}

func (t *Tiles) strides(box Box) []int64 {
	return strides(box.Shape(), t.a.header.Type.Bytes, t.opts.Order == ColumnMajor)
}

// offset is where an element lies.
func offset(strides, at []int64) (off int64) {
	for i := range at {
		off += strides[i] * at[i]
	}
	return off
}

// leg is a box that lies inside of the array.
func (t *Tiles) leg(p []byte, low, shape, to []int64, mem int64) leg {
	v := View{a: t.a, off: t.a.off + offset(t.a.strides, low), shape: shape, strides: t.a.strides}
	return newLeg(v, p, mem, to)
}

// span is a part of an axis: where it lies in the array and in the tile.
type span struct{ file, mem, n int64 }

// spans cuts [low, high) of an axis of length n into parts that lie in the array.
func spans(edge Edge, low, high, n int64) []span {
	if edge == Clip {
		from, to := max(low, 0), min(high, n)
		return []span{{from, from - low, max(to-from, 0)}}
	}
	var out []span
	for at := low; at < high; {
		file := (at%n + n) % n
		length := min(high-at, n-file)
		out = append(out, span{file, at - low, length})
		at += length
	}
	return out
}

// legs adds what has to be moved for a tile with its ghost cells.
func (t *Tiles) legs(legs []leg, op string, p []byte, at []int64) ([]leg, error) {
	box, _, err := t.check(op, p, at)
	if err != nil {
		return nil, err
	}
	to := t.strides(box)
	low, shape, mem := make([]int64, len(at)), make([]int64, len(at)), make([]int64, len(at))
	var walk func(i int)
	walk = func(i int) {
		if i == len(at) {
			legs = append(legs, t.leg(p, low, slices.Clone(shape), to, offset(to, mem)))
			return
		}
		for _, s := range spans(t.opts.Edge, box.Low[i], box.High[i], t.a.header.Shape[i]) {
			low[i], mem[i], shape[i] = s.file, s.mem, s.n
			walk(i + 1)
		}
	}
	walk(0)
	return legs, nil
}
