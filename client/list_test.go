package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/seg"
)

// shaped is a random transfer: pieces of both sides that do not overlap, and parents.
func shaped(rng *rand.Rand, array []byte, fileEnd int64) *Transfer {
	t := &Transfer{Method: Method(rng.IntN(3)), File: shape(rng, fileEnd)}
	n := t.File.Len()
	switch rng.IntN(3) {
	case 0: // buffers, some of them neighbours, some in the other order
		for at, left := int64(0), n; left > 0; {
			k := min(left, 1+rng.Int64N(max(n/4, 1)))
			t.Bufs = append(t.Bufs, array[at:at+k:at+k])
			at, left = at+k+rng.Int64N(3), left-k
		}
		if rng.IntN(2) == 0 && len(t.Bufs) > 1 {
			t.Bufs[0], t.Bufs[1] = t.Bufs[1], t.Bufs[0]
		}
	case 1: // equal rows of an array
		t.Bufs = [][]byte{array}
		rows := 1 + rng.Int64N(6)
		for n%rows != 0 {
			rows--
		}
		t.Memory = seg.Strided(seg.Vector{Off: rng.Int64N(9), Block: n / rows,
			Dims: []seg.Dim{{Count: rows, Stride: n/rows + rng.Int64N(50)}}})
	case 2: // a list, backwards
		t.Bufs = [][]byte{array[:len(array)/2], array[len(array)/2:]}
		var list []seg.Piece
		for end, left := int64(len(array)), n; left > 0; {
			k := min(left, 1+rng.Int64N(max(n/3, 1)))
			list = append(list, seg.Piece{Off: end - k, Len: k})
			end, left = end-k-rng.Int64N(2), left-k
		}
		t.Memory = seg.List(list)
	}
	switch rng.IntN(4) {
	case 0:
		t.Parents = []Parent{{Bytes: array}}
	case 1:
		t.Parents = []Parent{{Bytes: array, Pin: rng.Int64N(int64(len(array))) - 5}}
	case 2:
		h := len(array) / 2
		t.Parents = []Parent{{Bytes: array[h:]}, {Bytes: array[:h], Pin: 4096}}
	}
	return t
}

// shape is a random access to [0, end) of at most 180 KB.
func shape(rng *rand.Rand, end int64) seg.Access {
	block := 1 + rng.Int64N(100)
	if rng.IntN(3) == 0 {
		block *= 30
	}
	inner, count := block+rng.Int64N(2*block), 1+rng.Int64N(12)
	outer, rows := inner*count+rng.Int64N(900), 1+rng.Int64N(5)
	v := seg.Vector{Block: block, Dims: []seg.Dim{{Count: rows, Stride: outer},
		{Count: count, Stride: inner}}}
	for seg.Strided(v).Span().Len >= end {
		v.Dims[0].Count, v.Dims[1].Count = (v.Dims[0].Count+1)/2, (v.Dims[1].Count+1)/2
	}
	v.Off = rng.Int64N(end - seg.Strided(v).Span().Len)
	a := seg.Strided(v)
	if rng.IntN(2) == 0 {
		return a
	}
	var list []seg.Piece
	for c := a.Cursor(); ; {
		p, ok := c.Next(1 + rng.Int64N(block))
		if !ok {
			break
		}
		if rng.IntN(9) > 0 {
			list = append(list, p)
		}
	}
	rng.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	return seg.List(append(list, seg.Piece{Off: end, Len: 1}))
}

// carry does by hand what a transfer means.
func carry(t *Transfer, file []byte) {
	s, err := newSpace(t)
	if err != nil {
		panic(err)
	}
	s.each(t.File, func(b []byte, off int64) {
		if t.Write {
			copy(file[off:], b)
		} else {
			copy(b, file[off:])
		}
	})
}

// TestPlanModel carries out the requests of random transfers on byte arrays, one for each stripe.
func TestPlanModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range 3000 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		l := &layout.Layout{Version: 1, Unit: 4096, Servers: make([]uint32, 1+rng.IntN(5))}
		const end = 100 << 10
		x := shaped(rng, make([]byte, 200<<10), end)
		objects := make([][]byte, l.Width())
		for i := range objects {
			objects[i] = make([]byte, end+l.Unit)
			fill(objects[i][:200], rng)
			fill(objects[i][40<<10:41<<10], rng)
		}
		file := make([]byte, end+2)
		for off := range file {
			s, at, _ := l.Locate(int64(off))
			file[off] = objects[s][at]
		}
		s, err := spaceOf(x)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, share := range plan(l, s, x.File) {
			for i := range share.requests {
				run(t, &share.requests[i], objects[share.stripe])
			}
		}
		got := bytes.Join(x.Bufs, nil)
		for _, b := range x.Bufs {
			clear(b)
		}
		carry(x, file)
		if !bytes.Equal(got, bytes.Join(x.Bufs, nil)) {
			t.Fatalf("round %d: other bytes: %+v of %d stripes", round, x, l.Width())
		}
	}
}

// run reads from an object what a request describes, within the limits of requests.
func run(t *testing.T, r *request, object []byte) {
	t.Helper()
	var size int64
	for _, w := range r.memory.Windows {
		size += int64(len(w.Buf))
	}
	if err := r.memory.Access.Validate(iod.PiecesMax, size); err != nil {
		t.Fatal(err)
	}
	if err := r.object.Validate(iod.PiecesMax, int64(len(object))); err != nil {
		t.Fatal(err)
	}
	if n := r.object.WireBytes() + r.memory.DescriptionBytes(); n > descriptionMax+100 {
		t.Fatalf("a description of %d bytes", n)
	}
	seg.Zip(r.object, r.memory.Access, func(o, m seg.Piece) bool {
		for _, w := range r.memory.Windows {
			if n := int64(len(w.Buf)); m.Off >= n {
				m.Off -= n
				continue
			}
			n := int64(copy(w.Buf[m.Off:], object[o.Off:o.End()]))
			o.Off, o.Len, m.Off = o.Off+n, o.Len-n, 0
		}
		return true
	})
}

// TestTransferModel moves random shapes to and from servers, of several providers, against a model.
func TestTransferModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	shm := newWiredBy(t, 3, true)
	net := remoteOnly()
	for name, fs := range map[string]*FS{
		"tcp":        shm.dial(""),
		"shm":        shm.dialNear(buffersMin),
		"registered": newRegistered(t, net).dialBy(t, net.Open(), Options{Register: 8 << 20}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			f, err := fs.Create(ctx, "/"+name)
			must(t, err)
			defer f.Close(ctx)
			const end = 2 << 20
			model := make([]byte, end+1)
			fill(model, rand.New(rand.NewPCG(seed, 0)))
			write(t, f, model, 0)
			array := fs.Alloc(200 << 10)
			defer array.Free()
			for round := range uint64(120) {
				rng := rand.New(rand.NewPCG(seed, round))
				memory := array.Bytes()
				if round%2 == 0 {
					memory = make([]byte, 200<<10)
				}
				x := shaped(rng, memory, end)
				x.Write, x.Durable = rng.IntN(2) == 0, rng.IntN(2) == 0
				x.Explain = &Explanation{}
				transferOnce(t, f, x, model, rng)
				if n := x.Explain.Requests; n < 1 || n > 3 {
					t.Fatalf("round %d: %d requests: %s", round, n, x.Explain)
				}
			}
			got := make([]byte, len(model))
			if _, err := f.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, model) {
				t.Fatalf("the file differs from its model: %v", err)
			}
		})
	}
}

// transferOnce does a transfer to a file and its model.
func transferOnce(t *testing.T, f *File, x *Transfer, model []byte, rng *rand.Rand) {
	t.Helper()
	for _, b := range x.Bufs {
		fill(b, rng)
	}
	was := bytes.Join(x.Bufs, nil)
	n, err := f.Transfer(context.Background(), x)
	if err != nil || n != x.File.Len() {
		t.Fatalf("%d of %d bytes: %v", n, x.File.Len(), err)
	}
	got := bytes.Join(x.Bufs, nil)
	at := 0
	for _, b := range x.Bufs {
		at += copy(b, was[at:])
	}
	carry(x, model)
	if !bytes.Equal(got, bytes.Join(x.Bufs, nil)) {
		t.Fatalf("other bytes in memory: %+v", x)
	}
}

// TestTilesAreOneRequestAServer: the vector of a tile travels as such, or as runs.
func TestTilesAreOneRequestAServer(t *testing.T) {
	const columns, rows = 1024, 768 // of a display; there are 2 x 2
	for _, u := range []int64{64 << 10, 1 << 20} {
		l := &layout.Layout{Version: 1, Unit: u, Servers: []uint32{1, 2, 3, 4}}
		for _, element := range []int64{1, 24, 40} {
			for tile := range int64(4) {
				row := columns * element
				tiled := seg.Strided(seg.Vector{Off: tile/2*rows*2*row + tile%2*row, Block: row,
					Dims: []seg.Dim{{Count: rows, Stride: 2 * row}}})
				all := make([]byte, 4*rows*row)
				for name, x := range map[string]*Transfer{
					"contiguous": {Bufs: [][]byte{all[:rows*row]}, File: tiled},
					"array":      {Bufs: [][]byte{all}, Memory: tiled, File: tiled},
					"hinted": {Bufs: [][]byte{all}, Memory: tiled, File: tiled,
						Parents: []Parent{{Bytes: all}}},
				} {
					s, err := spaceOf(x)
					must(t, err)
					requests := 0
					for _, share := range plan(l, s, x.File) {
						requests += len(share.requests)
					}
					if requests > 4 {
						t.Errorf("%s, unit %d, element %d, tile %d: %d requests", name, u, element, tile,
							requests)
					}
				}
			}
		}
	}
}

// TestTransferRefusals are errors of the caller.
func TestTransferRefusals(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	fs := c.client(Options{})
	f := create(t, fs, "f", 2)
	ctx := context.Background()
	defer f.Close(ctx)
	buf := make([]byte, 1000)
	vector := func(block int64, dims ...seg.Dim) seg.Access {
		return seg.Strided(seg.Vector{Block: block, Dims: dims})
	}
	for _, test := range []struct {
		name string
		x    Transfer
		want errs.Kind
		text string
	}{
		{"lengths", Transfer{Bufs: [][]byte{buf}, File: seg.Contig(0, 999)}, errs.Invalid, "1000 bytes"},
		{"negative stride", Transfer{Bufs: [][]byte{buf[:20]},
			File: vector(10, seg.Dim{Count: 2, Stride: -20})}, errs.Invalid, "negative"},
		{"memory backwards", Transfer{Bufs: [][]byte{buf}, File: seg.Contig(0, 20),
			Memory: vector(10, seg.Dim{Count: 2, Stride: -20})}, errs.Invalid, "negative"},
		{"outside of memory", Transfer{Bufs: [][]byte{buf}, File: seg.Contig(0, 20),
			Memory: vector(10, seg.Dim{Count: 2, Stride: 995})}, errs.Invalid, "outside"},
		{"a billion pieces", Transfer{Bufs: [][]byte{buf},
			File: vector(1, seg.Dim{Count: 1 << 30, Stride: 2})}, errs.TooBig, "pieces"},
		{"memory that overlaps", Transfer{Bufs: [][]byte{buf}, File: seg.Contig(0, 20),
			Memory: vector(10, seg.Dim{Count: 2, Stride: 5})}, errs.Invalid, "overlap"},
		{"buffers that overlap", Transfer{Bufs: [][]byte{buf[:10], buf[5:15]},
			File: seg.Contig(0, 20)}, errs.Invalid, "overlap"},
		{"method", Transfer{Bufs: [][]byte{buf}, File: seg.Contig(0, 1000), Method: 9},
			errs.Invalid, "method"},
		{"past the largest file", Transfer{Write: true, Bufs: [][]byte{buf[:2]},
			File: seg.List([]seg.Piece{{Off: 0, Len: 1}, {Off: layout.FileSizeMax, Len: 1}})},
			errs.Invalid, "outside"},
		{"parents", Transfer{Bufs: [][]byte{buf}, File: seg.Contig(0, 1000),
			Parents: make([]Parent, parentsMax+1)}, errs.TooBig, "parents"},
	} {
		_, err := f.Transfer(ctx, &test.x)
		if errs.KindOf(err) != test.want || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	write(t, f, []byte("0123456789"), 0)
	n, err := f.Transfer(ctx, &Transfer{Bufs: [][]byte{buf[:20]}, File: seg.Contig(3, 20)})
	if n != 7 || !errors.Is(err, io.EOF) || string(buf[:7]) != "3456789" || buf[7] != 0 {
		t.Errorf("past the end: %d, %v, %q", n, err, buf[:8])
	}
	if n, err := f.Transfer(ctx, &Transfer{}); n != 0 || err != nil {
		t.Errorf("nothing at all: %d, %v", n, err)
	}
}
