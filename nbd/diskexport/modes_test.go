package diskexport

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// views opens one disk in all modes.
func views(tb testing.TB, h *Host, s Spec) []*Export {
	tb.Helper()
	var all []*Export
	for m := range modesEnd {
		s.Mode = m
		e := open(tb, h, s)
		tb.Cleanup(func() {
			if err := e.Close(); err != nil {
				tb.Errorf("Close: %v", err)
			}
		})
		all = append(all, e)
	}
	return all
}

// kinds are the disks that modes are tried on: a file, and sets.
func kinds(tb testing.TB, size int64) map[string]Spec {
	raw := Spec{Unit: 12 << 10}
	for range 3 {
		raw.Paths = append(raw.Paths, fresh(tb, size))
	}
	set := Spec{Init: 64 << 10}
	for range 4 {
		set.Paths = append(set.Paths, fresh(tb, size+dataFrom))
	}
	return map[string]Spec{"file": {Paths: []string{fresh(tb, size+777)}}, "raw set": raw, "set": set}
}

// TestModesAreCoherent writes, trims, zeroes and flushes in all modes by turns, and reads in all of
// them, against a model.
func TestModesAreCoherent(t *testing.T) {
	for name, spec := range kinds(t, 1<<20) {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			all := views(t, newHost(t), spec)
			model := make([]byte, all[0].Size())
			for round := range 250 {
				if err := step(t.Context(), rng, all, model, 0); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			if err := compareAll(t.Context(), all, model, 0); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestModesSideBySide has one goroutine for each part of a disk, each of which uses all modes by
// turns; the parts share blocks, pages and units of the cache.
func TestModesSideBySide(t *testing.T) {
	for name, spec := range kinds(t, 2<<20) {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			all := views(t, newHost(t), spec)
			const parts = 8
			share := all[0].Size()/parts - 13
			var wg sync.WaitGroup
			for i := range int64(parts) {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(seed, uint64(i)))
					model := make([]byte, share)
					for round := range 60 {
						if err := step(t.Context(), rng, all, model, i*share); err != nil {
							t.Errorf("part %d, round %d: %v", i, round, err)
							return
						}
					}
					if err := compareAll(t.Context(), all, model, i*share); err != nil {
						t.Errorf("part %d: %v", i, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// step does one random operation in the part of the disk that begins at base.
func step(ctx context.Context, rng *rand.Rand, all []*Export, model []byte, base int64) error {
	e := all[rng.IntN(len(all))]
	off := rng.Int64N(int64(len(model)))
	n := 1 + rng.Int64N(min(int64(len(model))-off, 300<<10))
	if rng.IntN(2) == 0 {
		n = min(n, 5000)
	}
	if rng.IntN(2) == 0 {
		grain := []int64{512, 4096}[rng.IntN(2)]
		off, n = off/grain*grain, max(n/grain*grain, 1)
	}
	fua := rng.IntN(10) == 0
	switch rng.IntN(12) {
	case 0:
		if err := e.WriteZeroes(ctx, base+off, n, nbd.ZeroFlags{FUA: fua}); err != nil {
			return fmt.Errorf("%v: zero %d+%d: %w", e.mode, off, n, err)
		}
		clear(model[off : off+n])
	case 1:
		if rng.IntN(4) == 0 {
			return e.Flush(ctx)
		}
	case 2, 3, 4, 5, 6:
		p := make([]byte, n)
		x := rng.Uint64()
		for i := range p {
			x = x*6364136223846793005 + 1442695040888963407
			p[i] = byte(x >> 33)
		}
		if err := e.WriteAt(ctx, p, base+off, fua); err != nil {
			return fmt.Errorf("%v: write %d+%d: %w", e.mode, off, n, err)
		}
		copy(model[off:], p)
	default:
		return compare(ctx, e, model[off:off+n], base+off, rng.IntN(2) == 0)
	}
	return nil
}

// compare reads a range in one way and compares.
func compare(ctx context.Context, e *Export, want []byte, off int64, stream bool) error {
	got := bytes.Repeat([]byte{0xa5}, len(want))
	var err error
	if stream {
		err = e.Stream(ctx, off, int64(len(got)), &collector{off: off, got: got})
	} else if !e.ReadNow(got, off) {
		err = e.ReadAt(ctx, got, off)
	}
	if err != nil {
		return fmt.Errorf("%v: read %d+%d: %w", e.mode, off, len(want), err)
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%v (stream %v): byte %d of %d+%d is %#x, want %#x", e.mode, stream,
				off+int64(i), off, len(want), got[i], want[i])
		}
	}
	return nil
}

func compareAll(ctx context.Context, all []*Export, model []byte, base int64) error {
	for _, e := range all {
		for _, stream := range []bool{false, true} {
			if err := compare(ctx, e, model, base, stream); err != nil {
				return err
			}
		}
	}
	return nil
}

// collector puts pieces where they belong.
type collector struct {
	off int64
	mu  sync.Mutex
	got []byte
}

func (c *collector) Deliver(p nbd.Piece) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.Lent != nil {
		defer p.Lent.Return()
	}
	at := c.got[p.Off-c.off:][:p.Len]
	switch {
	case p.Data != nil:
		for _, b := range p.Data {
			at = at[copy(at, b):]
		}
	case p.File != nil:
		_, err := p.File.ReadAt(at, p.At)
		return err
	default:
		clear(at)
	}
	return nil
}

// TestOddWritesKeepTheirNeighbours: writes that share a block, from many goroutines and modes, keep
// all their bytes.
func TestOddWritesKeepTheirNeighbours(t *testing.T) {
	all := views(t, newHost(t), Spec{Paths: []string{fresh(t, 64<<10)}})
	const writers, rounds = 12, 60
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for r := range rounds {
				// Each has every twelfth stretch of seven bytes, all over the same blocks.
				off := int64((r*writers + w) * 7)
				e := all[(w+r)%len(all)]
				if err := e.WriteAt(t.Context(), bytes.Repeat([]byte{byte(w + 1)}, 7), off, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	want := make([]byte, writers*rounds*7)
	for i := range want {
		want[i] = byte(i/7%writers + 1)
	}
	if err := compareAll(t.Context(), all, want, 0); err != nil {
		t.Fatal(err)
	}
}

// TestReopenedDiskHasEverything: what any mode has acknowledged is there when all exports were
// closed and one is opened again, without a flush.
func TestReopenedDiskHasEverything(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		path := fresh(t, 1<<20)
		h := newHost(t)
		want := bytes.Repeat([]byte("sluice"), 1<<20/6)
		e := open(t, h, Spec{Paths: []string{path}, Mode: m})
		if err := e.WriteAt(t.Context(), want, 0, false); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		for again := range modesEnd {
			e := open(t, h, Spec{Paths: []string{path}, Mode: again, ReadOnly: true})
			if err := compare(t.Context(), e, want, 0, true); err != nil {
				t.Error(err)
			}
			e.Close()
		}
	})
}

// TestFullDisk: a file system without room is ENOSPC, in every mode, at the write or at the flush.
func TestFullDisk(t *testing.T) {
	dir := smallFS(t)
	eachMode(t, func(t *testing.T, m Mode) {
		path := dir + "/disk-" + m.String()
		makeSparse(t, path, 64<<20)
		h := newHost(t)
		e := open(t, h, Spec{Paths: []string{path}, Mode: m})
		defer removeAfter(t, e, path)
		var err error
		block := bytes.Repeat([]byte{7}, 1<<20)
		for off := int64(0); off < 64<<20 && err == nil; off += 1 << 20 {
			err = e.WriteAt(t.Context(), block, off, false)
		}
		if err == nil {
			err = e.Flush(t.Context())
		}
		if errs.KindOf(err) != errs.NoSpace {
			t.Errorf("%v, want NoSpace", err)
		}
		if err := e.ReadAt(t.Context(), make([]byte, 4096), 0); err != nil {
			t.Errorf("read: %v", err)
		}
	})
}
