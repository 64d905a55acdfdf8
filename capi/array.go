package capi

import (
	"context"
	"syscall"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/array"
	"github.com/sluice-storage/sluice/seg"
)

// arrayFile is a file as arrays use it: as it was opened.
type arrayFile struct{ *file }

func (f arrayFile) ReadList(ctx context.Context, bufs [][]byte, a seg.Access) (int64, error) {
	return f.f.ReadList(ctx, bufs, a)
}

func (f arrayFile) WriteList(ctx context.Context, bufs [][]byte, a seg.Access) (int64, error) {
	return f.f.Transfer(ctx, &client.Transfer{Write: true, Durable: f.durable, Bufs: bufs, File: a})
}

func (f arrayFile) Truncate(ctx context.Context, size int64) error {
	return f.f.Truncate(ctx, size)
}

func (f arrayFile) Size() int64 { return f.f.Size() }

// arrayOf is a struct sluice_array.
type arrayOf struct {
	file *file
	a    *array.Array
}

func (a *arrayOf) owner() *conn { return a.file.conn }

// shapeMax is how many axes an array has at most, as in package array and sluice.h.
const shapeMax = 64

// The flags of arrays and of tiles.
const (
	flagFortran = 1 // arrays: the first axis is the fastest
	flagWrap    = 1 // tiles: ghost cells outside of the array are those of its other end
	flagColumn  = 2 // tiles: the first axis is the fastest in memory
)

// addArray makes an array of a file.
func (l *Lib) addArray(h Handle, begin func(f *file) (*array.Array, error)) (Handle, error) {
	f, err := l.file(h)
	if err != nil {
		return 0, err
	}
	defer f.conn.leave()
	if f.appends {
		return 0, fail(syscall.EINVAL, "the file is open with O_APPEND: its writes have no place")
	}
	a, err := begin(f)
	if err != nil {
		return 0, err
	}
	return l.objects.add(kindArray, &arrayOf{f, a})
}

// OpenArray is sluice_array_open.
func (l *Lib) OpenArray(h Handle) (Handle, error) {
	return l.addArray(h, func(f *file) (*array.Array, error) {
		if _, err := f.f.Stat(f.conn.life); err != nil { // its length counts
			return nil, err
		}
		return array.Open(f.conn.life, arrayFile{f})
	})
}

// CreateArray is sluice_array_create.
func (l *Lib) CreateArray(h Handle, dtype uintptr, axes uint32, shape uintptr,
	flags uint32) (Handle, error) {
	return l.addArray(h, func(f *file) (*array.Array, error) {
		header, err := l.header(dtype, axes, shape, flags)
		if err != nil {
			return nil, err
		}
		return array.Create(f.conn.life, arrayFile{f}, header)
	})
}

// RawArray is sluice_array_raw.
func (l *Lib) RawArray(h Handle, off int64, dtype uintptr, axes uint32, shape uintptr,
	flags uint32) (Handle, error) {
	return l.addArray(h, func(f *file) (*array.Array, error) {
		header, err := l.header(dtype, axes, shape, flags)
		if err != nil {
			return nil, err
		}
		return array.Raw(arrayFile{f}, off, header)
	})
}

// header is what a program says of an array.
func (l *Lib) header(dtype uintptr, axes uint32, shape uintptr, flags uint32) (array.Header,
	error) {
	name, err := l.path(dtype)
	if err != nil {
		return array.Header{}, err
	}
	h := array.Header{Fortran: flags&flagFortran != 0}
	if flags&^flagFortran != 0 {
		return h, fail(syscall.EINVAL, "flags %#x of an array", flags)
	}
	if h.Type, err = array.ParseType(name); err != nil {
		return h, err
	}
	h.Shape, err = l.numbers("a shape", shape, int(min(axes, shapeMax+1)))
	return h, err
}

// numbers are those of each axis.
func (l *Lib) numbers(what string, addr uintptr, n int) ([]int64, error) {
	if n > shapeMax {
		return nil, fail(syscall.EINVAL, "an array of more than %d axes", shapeMax)
	}
	if n == 0 {
		return []int64{}, nil
	}
	f, err := copyOf(l.space, what, addr, 8*n)
	if err != nil {
		return nil, err
	}
	list := make([]int64, n)
	for i := range list {
		list[i] = f.i64()
	}
	return list, nil
}

// withArray runs a call on an array.
func (l *Lib) withArray(h Handle, fn func(a *arrayOf) (int64, error)) (int64, error) {
	a, err := get[*arrayOf](&l.objects, kindArray, h)
	if err != nil {
		return 0, err
	}
	if !a.file.conn.enter() {
		return 0, badHandle(kindArray, h)
	}
	defer a.file.conn.leave()
	return fn(a)
}

// CloseArray is sluice_array_close.
func (l *Lib) CloseArray(h Handle) error {
	_, err := take[*arrayOf](&l.objects, kindArray, h)
	return err
}

// SyncArray is sluice_array_sync.
func (l *Lib) SyncArray(h Handle) error {
	_, err := l.withArray(h, func(a *arrayOf) (int64, error) {
		return 0, a.file.f.Sync(a.file.conn.life)
	})
	return err
}

// ArrayInfo is sluice_array_info.
func (l *Lib) ArrayInfo(h Handle, to uintptr) error {
	_, err := l.withArray(h, func(a *arrayOf) (int64, error) {
		if _, err := sized(l.space, "struct sluice_array_info", to, ArrayInfoBytes); err != nil {
			return 0, err
		}
		b, err := out(l.space, "struct sluice_array_info", to, ArrayInfoBytes)
		if err != nil {
			return 0, err
		}
		header := a.a.Header()
		clear(b[4:])
		native.PutUint32(b[4:], uint32(len(header.Shape)))
		for i, n := range header.Shape {
			native.PutUint64(b[8+8*i:], uint64(n))
		}
		rest := b[8+8*shapeMax:]
		native.PutUint64(rest, uint64(header.Type.Bytes))
		native.PutUint64(rest[8:], uint64(a.a.Offset()))
		native.PutUint64(rest[16:], uint64(a.a.Bytes()))
		if header.Fortran {
			native.PutUint32(rest[24:], flagFortran)
		}
		putText(rest[32:], header.Type.String())
		return 0, nil
	})
	return err
}

// view is the part of an array that a program means.
func (l *Lib) view(a *arrayOf, slices uintptr) (array.View, error) {
	v := a.a.All()
	if slices == 0 {
		return v, nil
	}
	shape := a.a.Shape()
	words, err := l.numbers3("struct sluice_slice", slices, len(shape))
	if err != nil {
		return v, err
	}
	chosen := make([]array.Slice, len(shape))
	for i, n := range shape {
		if chosen[i], err = slice(words[3*i], words[3*i+1], words[3*i+2], n); err != nil {
			return v, err
		}
	}
	return v.Slice(chosen...)
}

// numbers3 are three numbers for each axis.
func (l *Lib) numbers3(what string, addr uintptr, axes int) ([]int64, error) {
	if axes == 0 {
		return nil, nil
	}
	f, err := copyOf(l.space, what, addr, axes*SliceBytes)
	list := make([]int64, 3*axes)
	for i := range list {
		if err == nil {
			list[i] = f.i64()
		}
	}
	return list, err
}

// slice chooses count places along an axis of length n. Nothing is cut off: what is not there is an
// error.
func slice(start, count, step, n int64) (array.Slice, error) {
	if step == 0 {
		step = 1
	}
	bad := count < 0 || count > 0 && (start < 0 || start >= n)
	if !bad && count > 1 {
		room := n - 1 - start // in the direction of the step
		if step < 0 {
			room = start
		}
		steps := uint64(max(step, -step)) // also of the lowest number
		bad = steps > uint64(room) || count-1 > room/int64(steps)
	}
	switch {
	case bad:
		return array.Slice{}, fail(syscall.EINVAL, "%d elements from %d on in steps of %d, of an axis "+
			"of length %d", count, start, step, n)
	case count == 0:
		return array.Range(0, 0), nil
	case count == 1:
		return array.Range(start, start+1), nil
	}
	last := start + (count-1)*step
	switch {
	case step > 0:
		return array.Range(start, last+1).By(step), nil
	case last == 0:
		return array.From(start).By(step), nil // a stop of -1 would count from the end
	}
	return array.Range(start, last-1).By(step), nil
}

// ReadArray is sluice_array_read, WriteArray sluice_array_write.
func (l *Lib) ReadArray(h Handle, slices, memory, strides uintptr) (int64, error) {
	return l.moveArray(h, slices, memory, strides, array.View.ReadStrided)
}

// WriteArray is sluice_array_write.
func (l *Lib) WriteArray(h Handle, slices, memory, strides uintptr) (int64, error) {
	return l.moveArray(h, slices, memory, strides, array.View.WriteStrided)
}

func (l *Lib) moveArray(h Handle, slices, memory, stridesAt uintptr,
	move func(array.View, context.Context, []byte, int64, []int64) error) (int64, error) {
	return l.withArray(h, func(a *arrayOf) (int64, error) {
		v, err := l.view(a, slices)
		if err != nil {
			return 0, err
		}
		shape := v.Shape()
		strides := rowMajor(shape, v.Type().Bytes)
		if stridesAt != 0 {
			if strides, err = l.numbers("strides", stridesAt, len(shape)); err != nil {
				return 0, err
			}
		}
		low, high, err := v.Reach(strides)
		if err != nil || high == low {
			return 0, err
		}
		if memory == 0 || uint64(memory) > bytesMax || uint64(memory) < uint64(-low) {
			return 0, fail(syscall.EFAULT, "memory at %#x, %d to %d bytes", memory, low, high)
		}
		var u use
		defer u.end(l)
		if err := u.add(l, region{memory - uintptr(-low), uint64(high - low)}); err != nil {
			return 0, err
		}
		return v.Bytes(), move(v, a.file.conn.life, u.bufs[0], -low, strides)
	})
}

// rowMajor are the strides of memory without gaps whose last axis is the fastest.
func rowMajor(shape []int64, element int64) []int64 {
	out := make([]int64, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		out[i] = element
		element *= max(shape[i], 1) // no more than the array is long
	}
	return out
}

// tiles cut an array as a struct sluice_tiling says.
func (l *Lib) tiles(a *arrayOf, addr uintptr) (*array.Tiles, error) {
	f, err := sized(l.space, "struct sluice_tiling", addr, TilingBytes)
	if err != nil {
		return nil, err
	}
	flags, shape, ghost := f.u32(), f.pointer(), f.pointer()
	if flags&^(flagWrap|flagColumn) != 0 {
		return nil, fail(syscall.EINVAL, "flags %#x of struct sluice_tiling", flags)
	}
	opts := array.TileOptions{Order: array.RowMajor}
	if flags&flagColumn != 0 {
		opts.Order = array.ColumnMajor
	}
	if flags&flagWrap != 0 {
		opts.Edge = array.Wrap
	}
	axes := len(a.a.Shape())
	if opts.Shape, err = l.numbers("the shape of tiles", shape, axes); err != nil {
		return nil, err
	}
	if ghost != 0 {
		if opts.Ghost, err = l.numbers("ghost cells", ghost, axes); err != nil {
			return nil, err
		}
	}
	return a.a.Tiles(opts)
}

// ArrayGrid is sluice_array_grid.
func (l *Lib) ArrayGrid(h Handle, tiling, grid uintptr) error {
	_, err := l.withArray(h, func(a *arrayOf) (int64, error) {
		t, err := l.tiles(a, tiling)
		if err != nil {
			return 0, err
		}
		return 0, l.putNumbers("the numbers of tiles", grid, t.Grid())
	})
	return err
}

// ArrayTileBox is sluice_array_tile_box.
func (l *Lib) ArrayTileBox(h Handle, tiling, at, low, high uintptr) (int64, error) {
	return l.withTile(h, tiling, at, func(_ *arrayOf, t *array.Tiles, at []int64) (int64, error) {
		box, _, err := t.Box(at...)
		if err == nil && low != 0 {
			err = l.putNumbers("the beginning of a tile", low, box.Low)
		}
		if err == nil && high != 0 {
			err = l.putNumbers("the end of a tile", high, box.High)
		}
		if err != nil {
			return 0, err
		}
		return t.Bytes(at...)
	})
}

func (l *Lib) putNumbers(what string, to uintptr, list []int64) error {
	if len(list) == 0 {
		return nil
	}
	b, err := out(l.space, what, to, 8*len(list))
	for i, n := range list {
		if err == nil {
			native.PutUint64(b[8*i:], uint64(n))
		}
	}
	return err
}

func (l *Lib) withTile(h Handle, tiling, at uintptr,
	fn func(a *arrayOf, t *array.Tiles, at []int64) (int64, error)) (int64, error) {
	return l.withArray(h, func(a *arrayOf) (int64, error) {
		t, err := l.tiles(a, tiling)
		if err != nil {
			return 0, err
		}
		place, err := l.numbers("the place of a tile", at, len(a.a.Shape()))
		if err != nil {
			return 0, err
		}
		return fn(a, t, place)
	})
}

// ReadTile is sluice_array_read_tile, WriteTile sluice_array_write_tile.
func (l *Lib) ReadTile(h Handle, tiling, at, memory uintptr, n uint64) (int64, error) {
	return l.moveTile(h, tiling, at, memory, n, (*array.Tiles).Read)
}

// WriteTile is sluice_array_write_tile.
func (l *Lib) WriteTile(h Handle, tiling, at, memory uintptr, n uint64) (int64, error) {
	return l.moveTile(h, tiling, at, memory, n, (*array.Tiles).Write)
}

func (l *Lib) moveTile(h Handle, tiling, at, memory uintptr, n uint64,
	move func(*array.Tiles, context.Context, []byte, ...int64) error) (int64, error) {
	return l.withTile(h, tiling, at, func(a *arrayOf, t *array.Tiles, at []int64) (int64, error) {
		need, err := t.Bytes(at...)
		if err != nil {
			return 0, err
		}
		if n != uint64(need) {
			return 0, fail(syscall.EINVAL, "%d bytes of memory for a tile of %d", n, need)
		}
		var u use
		defer u.end(l)
		if err := u.add(l, region{memory, n}); err != nil {
			return 0, err
		}
		var p []byte
		if len(u.bufs) > 0 {
			p = u.bufs[0]
		}
		return need, move(t, a.file.conn.life, p, at...)
	})
}
