// Package exporttest is the conformance suite of nbd.Export and its extras: random operations
// against a model that is a slice of bytes, concurrent use, and the promises about errors. Every
// export passes it.
//
// It does not test durability, which needs a crash, nor the protocol.
//
// Read suite.go first, then stream.go (reads in pieces).
package exporttest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// Open makes a fresh export of size bytes, all zero. The suite closes it.
type Open func(tb testing.TB, size int64) nbd.Export

// Run runs the whole suite.
func Run(t *testing.T, open Open) {
	t.Run("model", func(t *testing.T) { testModel(t, open) })
	t.Run("fresh reads zero", func(t *testing.T) { testFresh(t, open) })
	t.Run("slices outlive trims", func(t *testing.T) { testSliceStable(t, open) })
	t.Run("concurrent", func(t *testing.T) { testConcurrent(t, open) })
	t.Run("concurrent map", func(t *testing.T) { testConcurrentMap(t, open) })
	t.Run("runs", func(t *testing.T) { testRuns(t, open) })
	t.Run("streams stop", func(t *testing.T) { testStreamStops(t, open) })
	t.Run("streams side by side", func(t *testing.T) { testStreamsBeside(t, open) })
	t.Run("batches", func(t *testing.T) { testBatches(t, open) })
	t.Run("odd sizes", func(t *testing.T) { testOddSizes(t, open) })
}

// model is the export next to what it must hold.
type model struct {
	exp  nbd.Export
	want []byte
}

func (m *model) span(t *rapid.T) (off, length int64) {
	size := int64(len(m.want))
	off = rapid.Int64Range(0, size-1).Draw(t, "off")
	length = rapid.Int64Range(1, size-off).Draw(t, "length")
	if rapid.Bool().Draw(t, "aligned") {
		off -= off % 4096
		length = min((length+4095)/4096*4096, size-off)
	}
	return off, length
}

// seldom is true once in a while: syncs take a hundred times longer than everything else.
func seldom(t *rapid.T, label string) bool { return rapid.IntRange(0, 7).Draw(t, label) == 7 }

func (m *model) write(t *rapid.T) {
	off, length := m.span(t)
	length = min(length, 64<<10)
	p := pattern(rapid.Uint64().Draw(t, "seed"), int(length))
	fua := seldom(t, "fua")
	if err := m.exp.WriteAt(context.Background(), p, off, fua); err != nil {
		t.Fatalf("WriteAt(%d, %d): %v", off, length, err)
	}
	copy(m.want[off:], p)
}

func (m *model) read(t *rapid.T) {
	off, length := m.span(t)
	m.compare(t, off, length)
}

// compare reads the range in every way that the export has.
func (m *model) compare(t failer, off, length int64) {
	want := m.want[off : off+length]
	got := bytes.Repeat([]byte{0xa5}, int(length))
	if err := m.exp.ReadAt(context.Background(), got, off); err != nil {
		t.Fatalf("ReadAt(%d, %d): %v", off, length, err)
	}
	same(t, "ReadAt", off, got, want)
	if s := nbd.ExtrasOf(m.exp).Slicer; s != nil {
		p, release, err := s.Slice(off, int(length))
		if err != nil || int64(len(p)) != length || cap(p) != len(p) {
			t.Fatalf("Slice(%d, %d): %d bytes of %d, %v", off, length, len(p), cap(p), err)
		}
		same(t, "Slice", off, p, want)
		release()
	}
	if n := nbd.ExtrasOf(m.exp).NowReader; n != nil {
		now := make([]byte, length)
		if n.ReadNow(now, off) {
			same(t, "ReadNow", off, now, want)
		}
	}
	m.compareStream(t, off, length)
}

// trim leaves the range undefined: each byte old or zero. The model learns what it became.
func (m *model) trim(t *rapid.T) {
	tr := nbd.ExtrasOf(m.exp).Trimmer
	if tr == nil {
		t.Skip("no Trimmer")
	}
	off, length := m.span(t)
	err := tr.Trim(context.Background(), off, length, seldom(t, "fua"))
	if err != nil && errs.KindOf(err) != errs.Unsupported {
		t.Fatalf("Trim(%d, %d): %v", off, length, err)
	}
	got := make([]byte, length)
	if err := m.exp.ReadAt(context.Background(), got, off); err != nil {
		t.Fatalf("ReadAt after Trim: %v", err)
	}
	for i, b := range got {
		if b != 0 && b != m.want[off+int64(i)] {
			t.Fatalf("byte %d is %#x after Trim, was %#x", off+int64(i), b, m.want[off+int64(i)])
		}
	}
	copy(m.want[off:], got)
}

func (m *model) zero(t *rapid.T) {
	z := nbd.ExtrasOf(m.exp).Zeroer
	if z == nil {
		t.Skip("no Zeroer")
	}
	off, length := m.span(t)
	flags := nbd.ZeroFlags{
		FUA:    seldom(t, "fua"),
		NoHole: rapid.Bool().Draw(t, "nohole"),
		Fast:   rapid.Bool().Draw(t, "fast"),
	}
	err := z.WriteZeroes(context.Background(), off, length, flags)
	if errs.KindOf(err) == errs.Unsupported {
		m.compare(t, 0, int64(len(m.want))) // without side effect
		return
	}
	if err != nil {
		t.Fatalf("WriteZeroes(%d, %d, %+v): %v", off, length, flags, err)
	}
	clear(m.want[off : off+length])
}

func (m *model) flush(t *rapid.T) {
	if !seldom(t, "flush") {
		return
	}
	if err := m.exp.Flush(context.Background()); err != nil {
		t.Fatalf("Flush: %v", err)
	}
}

func (m *model) mapped(t *rapid.T) {
	off, length := m.span(t)
	m.checkMap(t, off, length, rapid.IntRange(1, 20).Draw(t, "max"))
}

// checkMap asks for the map and holds it against the content: what is called zero must be.
func (m *model) checkMap(t failer, off, length int64, most int) {
	mp := nbd.ExtrasOf(m.exp).Mapper
	if mp == nil {
		return
	}
	prefix := []nbd.Extent{{Len: -7}}
	exts, err := mp.Map(context.Background(), off, length, most, prefix)
	if err != nil || len(exts) < 2 || len(exts) > most+1 || exts[0].Len != -7 {
		t.Fatalf("Map(%d, %d, %d): %v, %v", off, length, most, exts, err)
	}
	for i, e := range exts[1:] {
		if e.Len <= 0 || off >= int64(len(m.want)) {
			t.Fatalf("Map: extent %d of %v is empty or past the end", i, exts)
		}
		to := min(off+e.Len, int64(len(m.want)))
		if e.Zero && !allZero(m.want[off:to]) {
			t.Fatalf("Map: %d..%d is called zero and is not", off, to)
		}
		off += e.Len
	}
	if off > int64(len(m.want)) {
		t.Fatalf("Map: %v reaches to %d of %d", exts, off, len(m.want))
	}
}

func testModel(t *testing.T, open Open) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.Int64Range(1, 700<<10).Draw(rt, "size")
		m := &model{exp: open(t, size), want: make([]byte, size)}
		defer closeExport(t, m.exp)
		if m.exp.Size() != size {
			rt.Fatalf("Size() = %d, want %d", m.exp.Size(), size)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"write": m.write, "read": m.read, "trim": m.trim, "zero": m.zero,
			"flush": m.flush, "map": m.mapped,
		})
		m.compare(rt, 0, size)
		m.checkMap(rt, 0, size, 1000)
	})
}

func testFresh(t *testing.T, open Open) {
	const size = 3<<20 + 4096
	m := &model{exp: open(t, size), want: make([]byte, size)}
	defer closeExport(t, m.exp)
	m.compare(t, 0, size)
	m.checkMap(t, 0, size, 1000)
}

// testSliceStable holds a slice while its range is trimmed, zeroed and written again: it must stay
// readable, and hold only bytes that were in that range at some time.
func testSliceStable(t *testing.T, open Open) {
	const size = 1 << 20
	exp := open(t, size)
	defer closeExport(t, exp)
	s := nbd.ExtrasOf(exp).Slicer
	if s == nil {
		return // nothing is promised
	}
	ctx := context.Background()
	fill := func(b byte, off int64) {
		if err := exp.WriteAt(ctx, bytes.Repeat([]byte{b}, size/2), off, false); err != nil {
			t.Fatal(err)
		}
	}
	fill(1, 0)
	p, release, err := s.Slice(0, size/2)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if tr := nbd.ExtrasOf(exp).Trimmer; tr != nil {
		if err := tr.Trim(ctx, 0, size/2, false); err != nil {
			t.Fatal(err)
		}
	}
	fill(9, size/2) // memory that was given back must not be found here
	fill(2, 0)
	for i, b := range p {
		if b > 2 {
			t.Fatalf("byte %d of a lent slice is %d, which was never there", i, b)
		}
	}
}

// testConcurrent lets goroutines work on stripes of their own, each against its own model.
func testConcurrent(t *testing.T, open Open) {
	const stripe, stripes, rounds = 128<<10 + 512, 8, 60
	exp := open(t, stripe*stripes)
	defer closeExport(t, exp)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	for i := range stripes {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			if err := workStripe(exp, rng, int64(i)*stripe, stripe, rounds); err != nil {
				t.Errorf("stripe %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func workStripe(exp nbd.Export, rng *rand.Rand, base, size int64, rounds int) error {
	ctx := context.Background()
	want := make([]byte, size)
	for range rounds {
		off := rng.Int64N(size)
		n := 1 + rng.Int64N(min(size-off, 32<<10))
		switch rng.IntN(4) {
		case 0, 1:
			p := pattern(rng.Uint64(), int(n))
			if err := exp.WriteAt(ctx, p, base+off, false); err != nil {
				return err
			}
			copy(want[off:], p)
		case 2:
			if z := nbd.ExtrasOf(exp).Zeroer; z != nil {
				err := z.WriteZeroes(ctx, base+off, n, nbd.ZeroFlags{})
				if errs.KindOf(err) == errs.Unsupported {
					continue
				}
				if err != nil {
					return err
				}
				clear(want[off : off+n])
			}
		case 3:
			if rng.IntN(8) > 0 {
				continue
			}
			if err := exp.Flush(ctx); err != nil {
				return err
			}
		}
		got := make([]byte, size)
		if err := exp.ReadAt(ctx, got, base); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("content differs at %d", base+firstDifference(got, want))
		}
	}
	return nil
}

// testConcurrentMap races writes against zeroes of one range. Whichever wins, a map that is asked
// afterwards must not call data zero.
func testConcurrentMap(t *testing.T, open Open) {
	const size = 512 << 10
	exp := open(t, size)
	defer closeExport(t, exp)
	z := nbd.ExtrasOf(exp).Zeroer
	if z == nil {
		return
	}
	ctx := context.Background()
	data := bytes.Repeat([]byte{7}, size)
	for round := range 50 {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := exp.WriteAt(ctx, data, 0, false); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			err := z.WriteZeroes(ctx, 0, size, nbd.ZeroFlags{})
			if err != nil && errs.KindOf(err) != errs.Unsupported {
				t.Error(err)
			}
		})
		wg.Wait()
		got := make([]byte, size)
		if err := exp.ReadAt(ctx, got, 0); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		m := &model{exp: exp, want: got}
		m.checkMap(t, 0, size, 1000)
	}
}

// testRuns writes single runs at the borders of every power of two, where maps of any grain have
// their seams, and checks the map of the whole device each time.
func testRuns(t *testing.T, open Open) {
	const size = 24 << 20
	m := &model{exp: open(t, size), want: make([]byte, size)}
	defer closeExport(t, m.exp)
	for at := int64(64 << 10); at < size; at *= 2 {
		for _, n := range []int64{1, 64 << 10} {
			for _, off := range []int64{at - n, at} {
				p := pattern(uint64(off), int(n))
				if err := m.exp.WriteAt(context.Background(), p, off, false); err != nil {
					t.Fatalf("WriteAt(%d, %d): %v", off, n, err)
				}
				copy(m.want[off:], p)
				m.checkMap(t, 0, size, 1000)
				clear(m.want[off : off+n])
				err := m.exp.WriteAt(context.Background(), m.want[off:off+n], off, false)
				if err != nil {
					t.Fatalf("WriteAt(%d, %d): %v", off, n, err)
				}
				if z := nbd.ExtrasOf(m.exp).Zeroer; z != nil {
					err := z.WriteZeroes(context.Background(), 0, size, nbd.ZeroFlags{})
					if err != nil && errs.KindOf(err) != errs.Unsupported {
						t.Fatalf("WriteZeroes: %v", err)
					}
				}
			}
		}
	}
}

// testOddSizes writes the last byte of devices whose size fits no block.
func testOddSizes(t *testing.T, open Open) {
	for _, size := range []int64{1, 511, 4097, 64<<10 + 1, 1<<20 - 1} {
		m := &model{exp: open(t, size), want: make([]byte, size)}
		if err := m.exp.WriteAt(context.Background(), []byte{42}, size-1, true); err != nil {
			t.Fatalf("size %d: %v", size, err)
		}
		m.want[size-1] = 42
		m.compare(t, 0, size)
		m.checkMap(t, 0, size, 100)
		closeExport(t, m.exp)
	}
}

// failer is what *testing.T and *rapid.T have in common here.
type failer interface {
	Fatalf(format string, args ...any)
}

func same(t failer, what string, off int64, got, want []byte) {
	if !bytes.Equal(got, want) {
		at := firstDifference(got, want)
		t.Fatalf("%s: byte %d is %#x, want %#x", what, off+at, got[at], want[at])
	}
}

func allZero(p []byte) bool {
	zeroes := make([]byte, 64<<10)
	for len(p) > 0 {
		n := min(len(p), len(zeroes))
		if !bytes.Equal(p[:n], zeroes[:n]) {
			return false
		}
		p = p[n:]
	}
	return true
}

func firstDifference(a, b []byte) int64 {
	for i := range a {
		if a[i] != b[i] {
			return int64(i)
		}
	}
	return -1
}

func pattern(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rng.Uint32()) | 1
	}
	return p
}

func closeExport(tb testing.TB, exp nbd.Export) {
	if err := exp.Close(); err != nil {
		tb.Errorf("Close: %v", err)
	}
}
