package array_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client/array"
	"github.com/sluice-storage/sluice/errs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStridedModel: random views to and from memory of random strides, of either sign, against
// loops; what lies between the elements is left alone.
func TestStridedModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ctx := context.Background()
	f := create(t, cluster(t), "/strided")
	for round := range 150 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		shape := make([]int64, 1+rng.IntN(3))
		for i := range shape {
			shape[i] = 1 + rng.Int64N(9)
		}
		kind, err := array.ParseType([]string{"u1", "<u2", "<f8", "V5"}[rng.IntN(4)])
		must(t, err)
		a, err := array.Create(ctx, f, array.Header{Type: kind, Shape: shape, Fortran: rng.IntN(2) == 0})
		must(t, err)
		whole := make([]byte, a.Bytes())
		for i := range whole {
			whole[i] = byte(rng.Uint32())
		}
		must(t, a.All().Write(ctx, whole, array.RowMajor))
		chosen := make([]array.Slice, len(shape))
		for i := range chosen {
			chosen[i] = array.Step([]int64{1, 2, -1, -2}[rng.IntN(4)])
		}
		v, err := a.All().Slice(chosen...)
		must(t, err)
		dense := make([]byte, v.Bytes())
		must(t, v.Read(ctx, dense, array.RowMajor))

		strides, off, size := randomStrides(rng, v.Shape(), kind.Bytes)
		p := bytes.Repeat([]byte{0xee}, int(size))
		want := bytes.Clone(p)
		at := int64(0)
		walk(v.Shape(), strides, off, func(mem int64) {
			copy(want[mem:mem+kind.Bytes], dense[at:])
			at += kind.Bytes
		})
		must(t, v.ReadStrided(ctx, p, off, strides))
		if !bytes.Equal(p, want) {
			t.Fatalf("round %d: shape %v, strides %v: other bytes", round, v.Shape(), strides)
		}
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		must(t, v.WriteStrided(ctx, p, off, strides))
		must(t, v.Read(ctx, dense, array.RowMajor))
		at = 0
		walk(v.Shape(), strides, off, func(mem int64) {
			if !bytes.Equal(p[mem:mem+kind.Bytes], dense[at:at+kind.Bytes]) {
				t.Fatalf("round %d: shape %v, strides %v: other bytes were written", round, v.Shape(),
					strides)
			}
			at += kind.Bytes
		})
	}
}

// randomStrides are those of a part of a larger array, its axes in any order and direction.
func randomStrides(rng *rand.Rand, shape []int64, element int64) (strides []int64,
	off, size int64) {
	strides = make([]int64, len(shape))
	step := element
	for _, i := range rng.Perm(len(shape)) {
		step += rng.Int64N(4) * rng.Int64N(20)
		strides[i] = step
		if rng.IntN(2) == 0 {
			strides[i] = -step
			off += (shape[i] - 1) * step
		}
		step *= shape[i]
	}
	size = element
	for i, n := range shape {
		size += (n - 1) * max(strides[i], -strides[i])
	}
	return strides, off, size
}

// walk visits the elements, the last axis the fastest.
func walk(shape, strides []int64, mem int64, fn func(mem int64)) {
	if len(shape) == 0 {
		fn(mem)
		return
	}
	for i := range shape[0] {
		walk(shape[1:], strides[1:], mem+i*strides[0], fn)
	}
}

// TestStridedMisuse: memory that is too short, strides that make elements overlap, or that no
// number holds.
func TestStridedMisuse(t *testing.T) {
	ctx := context.Background()
	kind, err := array.ParseType("<f8")
	must(t, err)
	a, err := array.Create(ctx, create(t, cluster(t), "/misuse"),
		array.Header{Type: kind, Shape: []int64{3, 4}})
	must(t, err)
	v, p := a.All(), make([]byte, 96)
	must(t, v.ReadStrided(ctx, p, 0, []int64{32, 8}))
	for _, row := range []struct {
		off     int64
		strides []int64
	}{
		{0, nil}, {0, []int64{32}}, {0, []int64{32, 8, 1}}, {1, []int64{32, 8}}, {-8, []int64{32, 8}},
		{0, []int64{-32, 8}}, {0, []int64{8, 8}}, {0, []int64{0, 8}}, {0, []int64{24, 8}},
		{0, []int64{1 << 62, 8}}, {0, []int64{-1 << 63, 8}}, {1 << 62, []int64{32, 8}},
	} {
		err := v.ReadStrided(ctx, p, row.off, row.strides)
		if k := errs.KindOf(err); k != errs.Invalid && k != errs.TooBig {
			t.Errorf("%+v: %v", row, err)
		}
	}
}
