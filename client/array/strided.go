package array

import (
	"cmp"
	"context"
	"math/bits"
	"slices"

	"github.com/sluice-storage/sluice/errs"
)

// Memory whose elements lie at distances of their own, as a part of a larger array does.

// ReadStrided reads the view into memory whose first element lies at off in p, and the next ones of
// each axis strides bytes from each other, which may be negative. Elements must not overlap; what
// lies between them is left as it is.
func (v View) ReadStrided(ctx context.Context, p []byte, off int64, strides []int64) error {
	l, err := v.strided("array.Read", p, off, strides)
	if err == nil && overlap(v.shape, strides, v.a.header.Type.Bytes) {
		err = errs.Newf(errs.Invalid, "array.Read", "", "strides of %v for a shape of %v: elements "+
			"may overlap", strides, v.shape)
	}
	if err != nil {
		return err
	}
	return errs.Wrap("array.Read", "", v.a.move(ctx, reading, []leg{l}))
}

// WriteStrided writes such memory to the view.
func (v View) WriteStrided(ctx context.Context, p []byte, off int64, strides []int64) error {
	l, err := v.strided("array.Write", p, off, strides)
	if err != nil {
		return err
	}
	return errs.Wrap("array.Write", "", v.a.move(ctx, writing, []leg{l}))
}

func (v View) strided(op string, p []byte, off int64, strides []int64) (leg, error) {
	low, high, err := v.Reach(strides)
	if err != nil {
		return leg{}, err
	}
	if high > low && (off < 0 || off > int64(len(p)) || off+low < 0 || high > int64(len(p))-off) {
		return leg{}, errs.Newf(errs.Invalid, op, "", "%d bytes of memory, of which those from %d to %d "+
			"are needed", len(p), off+low, off+high)
	}
	return newLeg(v, p, off, strides), nil
}

// Reach tells which memory a view with such strides needs: from low, which is not above 0, up to
// high, seen from its first element. Both are 0 where there are no elements.
func (v View) Reach(strides []int64) (low, high int64, err error) {
	if len(strides) != len(v.shape) {
		return 0, 0, errs.Newf(errs.Invalid, "array.Reach", "", "%d strides for %d axes", len(strides),
			len(v.shape))
	}
	high = v.a.header.Type.Bytes
	for i, n := range v.shape {
		if n == 0 {
			return 0, 0, nil
		}
		over, d := bits.Mul64(uint64(n-1), uint64(max(strides[i], -strides[i])))
		if over != 0 || d > reachMax || strides[i] < -reachMax || high-low+int64(d) > reachMax {
			return 0, 0, errs.Newf(errs.TooBig, "array.Reach", "", "a stride of %d bytes along an axis of "+
				"length %d", strides[i], n)
		}
		if strides[i] < 0 {
			low -= int64(d)
		} else {
			high += int64(d)
		}
	}
	return low, high, nil
}

// reachMax is more than a process can address.
const reachMax = 1 << 48

// overlap tells whether elements may share bytes: not where, in the order of their strides, each
// axis steps over all that the ones before it reach. Every array that is a part of a larger one is
// like that.
func overlap(shape, strides []int64, element int64) bool {
	axes := make([]axis, 0, len(shape))
	for i, n := range shape {
		if n == 0 {
			return false
		}
		if n > 1 {
			axes = append(axes, axis{n: n, mem: max(strides[i], -strides[i])})
		}
	}
	slices.SortFunc(axes, func(x, y axis) int { return cmp.Compare(x.mem, y.mem) })
	reach := element
	for _, x := range axes {
		if x.mem < reach {
			return true
		}
		reach += (x.n - 1) * x.mem
	}
	return false
}
