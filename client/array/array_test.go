package array_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/array"
	"github.com/sluice-storage/sluice/client/clustertest"
)

// cluster starts three I/O servers and a client of them.
func cluster(t *testing.T) *client.FS {
	t.Helper()
	url, stop, err := clustertest.Start(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	fs, err := client.Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	return fs
}

func create(t *testing.T, fs *client.FS, name string) *client.File {
	t.Helper()
	f, err := fs.Create(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(context.Background()) })
	return f
}

// seeds are those of a random test, printed so that one can be run alone: SEED=n go test -run ...
func seeds(t *testing.T, n int) []uint64 {
	var from uint64
	if _, err := fmt.Sscan(os.Getenv("SEED"), &from); err == nil {
		return []uint64{from}
	}
	from = uint64(time.Now().UnixNano()) % 1e9
	t.Logf("seeds %d to %d", from, from+uint64(n)-1)
	out := make([]uint64, n)
	for i := range out {
		out[i] = from + uint64(i)
	}
	return out
}

// model is an array as everybody understands it: elements by their number in row-major order.
type model struct {
	shape   []int64
	element int64
	data    []byte
}

func (m *model) at(index []int64) []byte {
	n := int64(0)
	for i, k := range index {
		n = n*m.shape[i] + k
	}
	return m.data[n*m.element : (n+1)*m.element]
}

// each visits all indices of a shape; the last axis is the fastest, or the first.
func each(shape []int64, fortran bool, fn func(index []int64)) {
	index := make([]int64, len(shape))
	if slices.Contains(shape, 0) {
		return
	}
	for {
		fn(index)
		i := 0
		for ; i < len(shape); i++ {
			k := i
			if !fortran {
				k = len(shape) - 1 - i
			}
			if index[k]++; index[k] < shape[k] {
				break
			}
			index[k] = 0
		}
		if i == len(shape) {
			return
		}
	}
}

// chosen is what a slice means on one axis, element by element.
type chosen struct {
	list  []int64
	taken bool // the axis is gone
}

// trial is one seed's array with its model.
type trial struct {
	t   *testing.T
	rng *rand.Rand
	ctx context.Context
	a   *array.Array
	m   *model
}

func (x *trial) fatalf(format string, args ...any) {
	x.t.Helper()
	h := x.a.Header()
	x.t.Fatalf("%s: "+format, append([]any{fmt.Sprint(h.Type, h.Fortran, h.Shape)}, args...)...)
}

// slice chooses at random, and says in the plainest way what that means.
func (x *trial) slice() (text string, all []chosen) {
	var words []string
	for _, n := range x.m.shape {
		var c chosen
		number := func() int64 { return x.rng.Int64N(2*n+4) - n - 2 }
		switch k := x.rng.IntN(4); {
		case k == 0 && n > 0:
			i := x.rng.Int64N(n)
			c = chosen{[]int64{i}, true}
			if x.rng.IntN(2) == 0 {
				i -= n
			}
			words = append(words, fmt.Sprint(i))
		case k == 1:
			words = append(words, ":")
			for i := range n {
				c.list = append(c.list, i)
			}
		default:
			step := x.rng.Int64N(7) - 3
			if step == 0 {
				step = 1
			}
			start, stop := number(), number()
			c.list = pythonRange(start, stop, step, n)
			words = append(words, fmt.Sprintf("%d:%d:%d", start, stop, step))
		}
		all = append(all, c)
	}
	return strings.Join(words, ","), all
}

// pythonRange is range(*slice(start, stop, step).indices(n)).
func pythonRange(start, stop, step, n int64) (out []int64) {
	fix := func(i int64) int64 {
		low, high := int64(0), n
		if step < 0 {
			low, high = -1, n-1
		}
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	start, stop = fix(start), fix(stop)
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, i)
	}
	return out
}

// part calls fn for each element that was chosen, in the given order.
func (x *trial) part(all []chosen, o array.Order, fn func(element []byte)) {
	shape := make([]int64, len(all))
	for i, c := range all {
		shape[i] = int64(len(c.list))
	}
	h := x.a.Header()
	fortran := o == array.ColumnMajor || o == array.AsFile && h.Fortran
	place := make([]int64, len(all))
	each(shape, fortran, func(index []int64) {
		for i, k := range index {
			place[i] = all[i].list[k]
		}
		fn(x.m.at(place))
	})
}

func (x *trial) order() array.Order { return array.Order(x.rng.IntN(3)) }

// view reads or writes a random slice.
func (x *trial) view() {
	text, all := x.slice()
	list, err := array.ParseSlices(text)
	if err != nil {
		x.fatalf("%s: %v", text, err)
	}
	v, err := x.a.All().Slice(list...)
	if err != nil {
		x.fatalf("[%s]: %v", text, err)
	}
	o := x.order()
	p := make([]byte, v.Bytes())
	if x.rng.IntN(2) == 0 {
		fill(x.rng, p)
		before := slices.Clone(p)
		if err := v.Write(x.ctx, p, o); err != nil {
			x.fatalf("write [%s]: %v", text, err)
		}
		if !bytes.Equal(before, p) {
			x.fatalf("write [%s] has changed its memory", text)
		}
		x.part(all, o, func(e []byte) { p = p[copy(e, p):] })
		return
	}
	if err := v.Read(x.ctx, p, o); err != nil {
		x.fatalf("read [%s]: %v", text, err)
	}
	var want []byte
	x.part(all, o, func(e []byte) { want = append(want, e...) })
	if !bytes.Equal(want, p) {
		x.fatalf("[%s] in order %d: %x, want %x", text, o, head(p), head(want))
	}
}

func head(p []byte) []byte { return p[:min(len(p), 64)] }

func fill(rng *rand.Rand, p []byte) {
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
}

// slabs reads a random slice piece by piece.
func (x *trial) slabs() {
	text, all := x.slice()
	list, err := array.ParseSlices(text)
	if err != nil {
		x.fatalf("%v", err)
	}
	v, err := x.a.All().Slice(list...)
	if err != nil {
		x.fatalf("%v", err)
	}
	limit := 1 + x.rng.Int64N(v.Bytes()+1)
	var got, want []byte
	for box, part := range v.Slabs(limit) {
		if n := part.Bytes(); n > max(limit, x.m.element) {
			x.fatalf("slab %v of [%s] has %d bytes, at most %d", box, text, n, limit)
		}
		p := make([]byte, part.Bytes())
		if err := part.Read(x.ctx, p, array.AsFile); err != nil {
			x.fatalf("%v", err)
		}
		got = append(got, p...)
	}
	x.part(all, array.AsFile, func(e []byte) { want = append(want, e...) })
	if !bytes.Equal(got, want) {
		x.fatalf("slabs of [%s]: %x, want %x", text, head(got), head(want))
	}
}

// tiles cuts the array at random.
func (x *trial) tiles() (*array.Tiles, array.TileOptions) {
	o := array.TileOptions{Edge: array.Edge(x.rng.IntN(2)), Order: x.order()}
	for _, n := range x.m.shape {
		o.Shape = append(o.Shape, 1+x.rng.Int64N(n+1))
		o.Ghost = append(o.Ghost, x.rng.Int64N(min(n, 4)+1))
	}
	t, err := x.a.Tiles(o)
	if err != nil {
		x.fatalf("%+v: %v", o, err)
	}
	return t, o
}

// expect is what a tile must be: outside, with Clip, what was.
func (x *trial) expect(o array.TileOptions, box array.Box, was []byte) []byte {
	h := x.a.Header()
	fortran := o.Order == array.ColumnMajor || o.Order == array.AsFile && h.Fortran
	var want []byte
	place := make([]int64, len(box.Low))
	each(box.Shape(), fortran, func(index []int64) {
		outside := false
		for i, k := range index {
			place[i] = box.Low[i] + k
			if o.Edge == array.Wrap {
				place[i] = (place[i] + x.m.shape[i]) % x.m.shape[i]
			}
			outside = outside || place[i] < 0 || place[i] >= x.m.shape[i]
		}
		e := was[len(want):][:x.m.element]
		if !outside {
			e = x.m.at(place)
		}
		want = append(want, e...)
	})
	return want
}

// tile reads or writes a random tile.
func (x *trial) tile() {
	t, o := x.tiles()
	at := make([]int64, len(x.m.shape))
	for i, n := range t.Grid() {
		if n == 0 {
			return
		}
		at[i] = x.rng.Int64N(n)
	}
	box, core, err := t.Box(at...)
	n, err2 := t.Bytes(at...)
	if err != nil || err2 != nil {
		x.fatalf("tile %v: %v, %v", at, err, err2)
	}
	p := make([]byte, n)
	fill(x.rng, p)
	if x.rng.IntN(2) == 0 {
		if err := t.Write(x.ctx, p, at...); err != nil {
			x.fatalf("write tile %v of %+v: %v", at, o, err)
		}
		x.absorb(o, box, core, p)
		return
	}
	want := x.expect(o, box, p)
	if err := t.Read(x.ctx, p, at...); err != nil {
		x.fatalf("read tile %v of %+v: %v", at, o, err)
	}
	if !bytes.Equal(want, p) {
		x.fatalf("tile %v of %+v: %x, want %x", at, o, head(p), head(want))
	}
}

// absorb takes a tile that was written into the model.
func (x *trial) absorb(o array.TileOptions, box, core array.Box, p []byte) {
	h := x.a.Header()
	fortran := o.Order == array.ColumnMajor || o.Order == array.AsFile && h.Fortran
	place := make([]int64, len(box.Low))
	each(box.Shape(), fortran, func(index []int64) {
		in := true
		for i, k := range index {
			place[i] = box.Low[i] + k
			in = in && place[i] >= core.Low[i] && place[i] < core.High[i]
		}
		if in {
			copy(x.m.at(place), p)
		}
		p = p[x.m.element:]
	})
}

// blocks walks over a cache of tiles, in lines or at random, and changes some.
func (x *trial) blocks() {
	t, o := x.tiles()
	grid := t.Grid()
	if slices.Contains(grid, 0) {
		return
	}
	var largest int64
	each(grid, false, func(at []int64) {
		n, err := t.Bytes(at...)
		if err != nil {
			x.fatalf("%v", err)
		}
		largest = max(largest, n)
	})
	limit := largest * (2 + x.rng.Int64N(6))
	b, err := t.Blocks(array.BlockOptions{Memory: 2 * limit, Ahead: x.rng.IntN(5) - 1})
	if err != nil {
		x.fatalf("%v", err)
	}
	defer b.Close()
	steps := 0
	each(grid, x.rng.IntN(2) == 0, func(at []int64) {
		if steps++; steps > 30 {
			return
		}
		if x.rng.IntN(5) == 0 {
			for i, n := range grid {
				at[i] = x.rng.Int64N(n)
			}
		}
		x.block(t, o, b, at)
		if used := b.Stats().Memory; used > 2*limit {
			x.fatalf("%d bytes of memory, at most %d", used, 2*limit)
		}
	})
}

func (x *trial) block(t *array.Tiles, o array.TileOptions, b *array.Blocks, at []int64) {
	box, core, err := t.Box(at...)
	if err != nil {
		x.fatalf("%v", err)
	}
	k, err := b.Get(x.ctx, at...)
	if err != nil {
		x.fatalf("block %v: %v", at, err)
	}
	want := x.expect(o, box, make([]byte, len(k.Bytes())))
	if !bytes.Equal(want, k.Bytes()) {
		x.fatalf("block %v of %+v: %x, want %x", at, o, head(k.Bytes()), head(want))
	}
	k.Release()
	if x.rng.IntN(4) == 0 {
		fill(x.rng, want)
		if err := b.Put(x.ctx, want, at...); err != nil {
			x.fatalf("put %v: %v", at, err)
		}
		x.absorb(o, box, core, want)
	}
}

// newTrial makes an array of random shape and content.
func newTrial(t *testing.T, f *client.File, seed uint64, large bool) *trial {
	x := &trial{t: t, rng: rand.New(rand.NewPCG(seed, 19)), ctx: context.Background()}
	types := []string{"|u1", "<i2", ">f4", "<f8", "<c16", "|S5", "<U3", "|V7",
		"[('x', '<f4'), ('v', '>i2', (3,)), ('', '|V2'), ('in', [('a', '|b1')])]"}
	h := array.Header{Fortran: x.rng.IntN(2) == 0}
	var err error
	if h.Type, err = array.ParseType(types[x.rng.IntN(len(types))]); err != nil {
		t.Fatal(err)
	}
	switch axes := x.rng.IntN(5); {
	case large:
		h.Shape = [][]int64{{700, 450}, {40, 90, 70}, {3, 160000}, {9, 70000}}[x.rng.IntN(4)]
	default:
		for range axes {
			h.Shape = append(h.Shape, x.rng.Int64N(9)+min(x.rng.Int64N(10), 1))
		}
	}
	if x.rng.IntN(3) == 0 {
		x.a, err = array.Raw(f, x.rng.Int64N(100), h)
		if err == nil {
			err = f.Truncate(x.ctx, x.a.End())
		}
	} else {
		h.Version = x.rng.IntN(4)
		x.a, err = array.Create(x.ctx, f, h)
	}
	if err != nil {
		t.Fatal(err)
	}
	x.m = &model{shape: h.Shape, element: h.Type.Bytes, data: make([]byte, x.a.Bytes())}
	fill(x.rng, x.m.data)
	if err := x.a.All().Write(x.ctx, x.m.data, array.RowMajor); err != nil {
		t.Fatal(err)
	}
	return x
}

// finish compares all of the file with the model.
func (x *trial) finish(f *client.File) {
	p := make([]byte, x.a.Bytes())
	if err := x.a.All().Read(x.ctx, p, array.RowMajor); err != nil || !bytes.Equal(p, x.m.data) {
		x.fatalf("in the end the array is another one: %v", err)
	}
	if f.Size() != x.a.End() {
		x.fatalf("the file has %d bytes, want %d", f.Size(), x.a.End())
	}
}

func TestRandomAgainstModel(t *testing.T) {
	fs := cluster(t)
	for _, seed := range seeds(t, 150) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			f := create(t, fs, fmt.Sprint("/", seed))
			x := newTrial(t, f, seed, false)
			for range 12 {
				x.view()
				x.tile()
			}
			x.slabs()
			x.blocks()
			x.finish(f)
		})
	}
}

func TestLargeAgainstModel(t *testing.T) {
	fs := cluster(t)
	for _, seed := range seeds(t, 4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			f := create(t, fs, fmt.Sprint("/", seed))
			x := newTrial(t, f, seed, true)
			for range 3 {
				x.view()
				x.tile()
			}
			x.finish(f)
		})
	}
}
