package exporttest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// OpenFixed makes an export of some content that no call changes. The suite closes it.
type OpenFixed func(tb testing.TB, content []byte) nbd.Export

// RunFixed is the suite for exports whose content stays as it is: they read it in every way that
// they have, from many goroutines, and whatever is written to them fails or changes nothing.
func RunFixed(t *testing.T, open OpenFixed) {
	const size = 1<<20 + 4097
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	content := pattern(seed, size)
	clear(content[256<<10 : 512<<10])
	exp := open(t, content)
	defer closeExport(t, exp)
	if exp.Size() != size {
		t.Fatalf("Size() = %d, want %d", exp.Size(), size)
	}
	m := &model{exp: exp, want: content}
	t.Run("reads", func(t *testing.T) { testFixedReads(t, m, seed) })
	t.Run("changes nothing", func(t *testing.T) { testFixedWrites(t, m, seed) })
}

func testFixedReads(t *testing.T, m *model, seed uint64) {
	m.compare(t, 0, int64(len(m.want)))
	m.checkMap(t, 0, int64(len(m.want)), 1000)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for range 40 {
				off := rng.Int64N(int64(len(m.want)))
				n := 1 + rng.Int64N(int64(len(m.want))-off)
				got := make([]byte, n)
				if err := m.exp.ReadAt(context.Background(), got, off); err != nil {
					t.Errorf("ReadAt(%d, %d): %v", off, n, err)
				} else if !bytes.Equal(got, m.want[off:off+n]) {
					t.Errorf("ReadAt(%d, %d) reads other bytes", off, n)
				}
			}
		})
	}
	wg.Wait()
}

func testFixedWrites(t *testing.T, m *model, seed uint64) {
	ctx := context.Background()
	extras := nbd.ExtrasOf(m.exp)
	told := extras.Fixed != nil && extras.Fixed.ReadOnly()
	for i := range uint64(20) {
		off := int64(i * 40_000)
		p := pattern(seed+1+i, 10_000)
		err := m.exp.WriteAt(ctx, p, off, i%2 == 0)
		if err == nil {
			t.Fatalf("WriteAt(%d) of other bytes succeeds", off)
		}
		if told && errs.KindOf(err) != errs.ReadOnly {
			t.Errorf("WriteAt: %v", err)
		}
		// What these answer is theirs to decide; they change nothing.
		if z := extras.Zeroer; z != nil {
			_ = z.WriteZeroes(ctx, off, 10_000, nbd.ZeroFlags{})
		}
		if tr := extras.Trimmer; tr != nil {
			_ = tr.Trim(ctx, off, 10_000, false)
		}
	}
	if err := m.exp.Flush(ctx); err != nil {
		t.Errorf("Flush: %v", err)
	}
	m.compare(t, 0, int64(len(m.want)))
}
