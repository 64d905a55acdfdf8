package array

import (
	"context"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// Slice chooses along one axis, as in NumPy: one index, which takes the axis away, or a range with
// a step. The zero Slice is the whole axis.
type Slice struct {
	start, stop, step int64
	from, to          bool // start, stop are given
	kind              sliceKind
}

type sliceKind uint8

const (
	sliceRange sliceKind = iota
	sliceIndex
	sliceEllipsis
)

// Index is one place; a negative one counts from the end.
func Index(i int64) Slice { return Slice{start: i, kind: sliceIndex} }

// Range is start:stop. Negative numbers count from the end, and what lies beyond it is cut off.
func Range(start, stop int64) Slice { return Slice{start: start, stop: stop, from: true, to: true} }

// From is start: to the end.
func From(start int64) Slice { return Slice{start: start, from: true} }

// Step is ::step; a negative step walks from the end to the beginning.
func Step(step int64) Slice { return Slice{step: step} }

// By is the same range with a step.
func (s Slice) By(step int64) Slice {
	s.step = step
	return s
}

// Rest stands for all axes that are not named: NumPy's "...".
func Rest() Slice { return Slice{kind: sliceEllipsis} }

// indices is what the slice means on an axis of n: the first index, how many, and how far apart.
func (s Slice) indices(axis int, n int64) (first, count, step int64, err error) {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "array.Slice", "axis "+strconv.Itoa(axis), format, args...)
	}
	if s.kind == sliceIndex {
		i := s.start
		if i < 0 {
			i += n
		}
		if i < 0 || i >= n {
			return 0, 0, 0, bad("index %d of an axis of length %d", s.start, n)
		}
		return i, 1, 1, nil
	}
	step = s.step
	if step == 0 {
		step = 1
	}
	if step == math.MinInt64 {
		return 0, 0, 0, bad("step %d", step)
	}
	low, high := int64(0), n // where a range walking this way can begin and end
	if step < 0 {
		low, high = -1, n-1
	}
	place := func(i int64, given bool, otherwise int64) int64 {
		if !given {
			return otherwise
		}
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	if step > 0 {
		first, high = place(s.start, s.from, low), place(s.stop, s.to, high)
		if high > first {
			count = (high - first - 1) / step
			count++
		}
		return first, count, step, nil
	}
	first, low = place(s.start, s.from, high), place(s.stop, s.to, low)
	if first > low {
		count = (first-low-1)/-step + 1
	}
	return first, count, step, nil
}

// ParseSlices reads an expression in NumPy's form without brackets: 0:10,::2,3 or ...,-1. An empty
// one chooses everything.
func ParseSlices(text string) ([]Slice, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	words := strings.Split(text, ",")
	if len(words) > axesMax+1 {
		return nil, errs.Newf(errs.Invalid, "array.Slice", "", "%d axes, at most %d", len(words), axesMax)
	}
	out := make([]Slice, len(words))
	for i, word := range words {
		var err error
		if out[i], err = parseSlice(strings.TrimSpace(word)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func parseSlice(word string) (s Slice, err error) {
	if word == "..." {
		return Rest(), nil
	}
	parts := strings.Split(word, ":")
	numbers := make([]int64, 3)
	given := make([]bool, 3)
	for i, part := range parts {
		if part = strings.TrimSpace(part); part == "" && len(parts) > 1 {
			continue
		}
		if i > 2 {
			break
		}
		if numbers[i], err = strconv.ParseInt(part, 10, 64); err != nil {
			break
		}
		given[i] = true
	}
	switch {
	case err != nil || len(parts) > 3:
		return s, errs.Newf(errs.Invalid, "array.Slice", word, "write 3, 0:10, ::2, -5:, :: -1 or ...")
	case len(parts) == 1:
		return Index(numbers[0]), nil
	case given[2] && numbers[2] == 0:
		return s, errs.Newf(errs.Invalid, "array.Slice", word, "a step of 0")
	}
	return Slice{start: numbers[0], stop: numbers[1], step: numbers[2], from: given[0],
		to: given[1]}, nil
}

// View is a part of an array: along each axis some elements, equally far apart. It is a value and
// safe for concurrent use.
type View struct {
	a       *Array
	off     int64 // of its first element in the file
	shape   []int64
	strides []int64 // in the file, in bytes; negative for axes that are walked backwards
}

// Slice chooses a part of the view, with a Slice for each axis; axes that are not named are taken
// whole.
func (v View) Slice(slices ...Slice) (View, error) {
	all, err := v.expand(slices)
	if err != nil {
		return View{}, err
	}
	out := View{a: v.a, off: v.off}
	for i, s := range all {
		first, count, step, err := s.indices(i, v.shape[i])
		if err != nil {
			return View{}, err
		}
		if count > 0 {
			out.off += first * v.strides[i]
		}
		if s.kind == sliceIndex {
			continue
		}
		if count < 2 {
			step = 1 // it leads nowhere, and may be any number
		}
		out.shape = append(out.shape, count)
		out.strides = append(out.strides, step*v.strides[i])
	}
	return out, nil
}

// expand replaces "..." and adds the axes that are not named.
func (v View) expand(named []Slice) ([]Slice, error) {
	at := slices.IndexFunc(named, func(s Slice) bool { return s.kind == sliceEllipsis })
	if at < 0 {
		at = len(named)
		named = append(slices.Clone(named), Rest())
	}
	missing := len(v.shape) - (len(named) - 1)
	rest := named[at+1:]
	if missing < 0 {
		return nil, errs.Newf(errs.Invalid, "array.Slice", "", "%d axes are named, the array has %d",
			len(named)-1, len(v.shape))
	}
	if slices.ContainsFunc(rest, func(s Slice) bool { return s.kind == sliceEllipsis }) {
		return nil, errs.Newf(errs.Invalid, "array.Slice", "", "\"...\" can be there only once")
	}
	out := append(slices.Clone(named[:at]), make([]Slice, missing)...)
	return append(out, rest...), nil
}

// Shape is its length along each axis.
func (v View) Shape() []int64 { return slices.Clone(v.shape) }

// Type is what its elements are.
func (v View) Type() Type { return v.a.header.Type }

// Bytes is how much memory its elements need.
func (v View) Bytes() int64 {
	n, _ := arrayBytes(v.a.header.Type.Bytes, v.shape) // not larger than the array
	return n
}

// Read reads the view into p, which is as long as Bytes says. The elements lie there without gaps,
// in the given order.
func (v View) Read(ctx context.Context, p []byte, o Order) error {
	l, err := v.whole("array.Read", p, o)
	if err != nil {
		return err
	}
	return errs.Wrap("array.Read", "", v.a.move(ctx, reading, []leg{l}))
}

// Write writes p to the view; memory as for Read. Elements between those of the view are not
// touched. Every byte of p is written once, in no particular order.
func (v View) Write(ctx context.Context, p []byte, o Order) error {
	l, err := v.whole("array.Write", p, o)
	if err != nil {
		return err
	}
	return errs.Wrap("array.Write", "", v.a.move(ctx, writing, []leg{l}))
}

func (v View) whole(op string, p []byte, o Order) (leg, error) {
	if n := v.Bytes(); int64(len(p)) != n {
		return leg{}, errs.Newf(errs.Invalid, op, "", "%d bytes of memory for %d bytes of the array",
			len(p), n)
	}
	to := strides(v.shape, v.a.header.Type.Bytes, v.a.order(o) == ColumnMajor)
	return newLeg(v, p, 0, to), nil
}

// Part is the box of the view from Low to High along each axis.
func (v View) Part(b Box) (View, error) {
	if len(b.Low) != len(v.shape) || len(b.High) != len(v.shape) {
		return View{}, errs.Newf(errs.Invalid, "array.Part", "", "a box of %d axes of %d", len(b.Low),
			len(v.shape))
	}
	out := View{a: v.a, off: v.off, shape: b.Shape(), strides: v.strides}
	for i, low := range b.Low {
		if low < 0 || b.High[i] < low || b.High[i] > v.shape[i] {
			return View{}, errs.Newf(errs.Invalid, "array.Part", "", "%d to %d of axis %d of length %d",
				low, b.High[i], i, v.shape[i])
		}
		if low < v.shape[i] {
			out.off += low * v.strides[i]
		}
	}
	return out, nil
}

// Slabs cuts the view into boxes of at most limit bytes (or one element), such that what they hold
// follows each other without gaps in an array of the view's shape and the file's order: what a
// program needs that copies more than its memory. Each box comes with its part of the view.
func (v View) Slabs(limit int64) iter.Seq2[Box, View] {
	return func(yield func(Box, View) bool) {
		v.slabs(Box{make([]int64, len(v.shape)), v.Shape()}, limit, 0, yield)
	}
}

// slabs cuts a box of the view along the k-th slowest axis.
func (v View) slabs(b Box, limit int64, k int, yield func(Box, View) bool) bool {
	part, err := v.Part(b)
	n := part.Bytes()
	if err != nil || n == 0 {
		return true
	}
	if n <= limit || k == len(v.shape) {
		return yield(b, part)
	}
	axis := k
	if v.a.header.Fortran {
		axis = len(v.shape) - 1 - k
	}
	end := b.High[axis]
	each := max(limit/(n/(end-b.Low[axis])), 1)
	for at := b.Low[axis]; at < end; at += each {
		sub := Box{slices.Clone(b.Low), slices.Clone(b.High)}
		sub.Low[axis], sub.High[axis] = at, min(at+each, end)
		if !v.slabs(sub, limit, k+1, yield) {
			return false
		}
	}
	return true
}
