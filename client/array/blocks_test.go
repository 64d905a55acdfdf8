package array_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/client/array"
	"github.com/sluice-storage/sluice/errs"
)

// numbered is an array of bytes whose tiles of 4 x 8 each have their number in all cells.
func numbered(t *testing.T, c *counting, rows, columns int64) *array.Tiles {
	t.Helper()
	ctx := context.Background()
	kind, err := array.ParseType("uint8")
	if err != nil {
		t.Fatal(err)
	}
	a, err := array.Create(ctx, c, array.Header{Type: kind, Shape: []int64{4 * rows, 8 * columns}})
	if err != nil {
		t.Fatal(err)
	}
	tiles, err := a.Tiles(array.TileOptions{Shape: []int64{4, 8}})
	if err != nil {
		t.Fatal(err)
	}
	for r := range rows {
		for k := range columns {
			err := tiles.Write(ctx, bytes.Repeat([]byte{byte(r*columns + k)}, 32), r, k)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return tiles
}

func get(t *testing.T, b *array.Blocks, want byte, at ...int64) {
	t.Helper()
	k, err := b.Get(context.Background(), at...)
	if err != nil {
		t.Fatalf("block %v: %v", at, err)
	}
	defer k.Release()
	if !bytes.Equal(k.Bytes(), bytes.Repeat([]byte{want}, 32)) {
		t.Fatalf("block %v: %x, want %x", at, k.Bytes(), want)
	}
}

// A walk through all tiles is brought in few requests, in any direction, and through the ends of
// its lines.
func TestAWalkIsPrefetched(t *testing.T) {
	c := &counting{File: create(t, cluster(t), "/walk")}
	tiles := numbered(t, c, 6, 10)
	for _, walk := range []struct {
		name string
		at   func(i int64) (r, k int64)
	}{
		{"along the rows", func(i int64) (int64, int64) { return i / 10, i % 10 }},
		{"along the columns", func(i int64) (int64, int64) { return i % 6, i / 6 }},
		{"backwards", func(i int64) (int64, int64) { return 5 - i/10, 9 - i%10 }},
		{"every second", func(i int64) (int64, int64) { return i / 5 % 6, i % 5 * 2 }},
	} {
		b, err := tiles.Blocks(array.BlockOptions{Memory: 32 * 16, Ahead: 4})
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(60) {
			r, k := walk.at(i)
			get(t, b, byte(r*10+k), r, k)
		}
		s := b.Stats()
		b.Close()
		// The first three tiles are asked for; a line's first one can be, when it is the first turn.
		if s.Misses > 12 || s.Unused > 12 || s.Memory > 32*16 {
			t.Errorf("%s: %+v", walk.name, s)
		}
	}
}

func TestRandomAccessIsNotPrefetched(t *testing.T) {
	c := &counting{File: create(t, cluster(t), "/random")}
	tiles := numbered(t, c, 4, 4)
	b, err := tiles.Blocks(array.BlockOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, at := range [][2]int64{{0, 0}, {3, 1}, {1, 2}, {2, 0}, {0, 3}, {2, 2}} {
		get(t, b, byte(at[0]*4+at[1]), at[0], at[1])
	}
	if s := b.Stats(); s.Prefetched != 0 || s.Misses != 6 {
		t.Errorf("%+v", s)
	}
	get(t, b, 13, 3, 1)
	if s := b.Stats(); s.Hits != 1 {
		t.Errorf("%+v", s)
	}
}

func TestBlocksAreBounded(t *testing.T) {
	c := &counting{File: create(t, cluster(t), "/bounded")}
	tiles := numbered(t, c, 4, 4)
	if _, err := tiles.Blocks(array.BlockOptions{Memory: 63}); errs.KindOf(err) != errs.Invalid {
		t.Errorf("memory for less than two tiles: %v", err)
	}
	b, err := tiles.Blocks(array.BlockOptions{Memory: 64, Ahead: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx := context.Background()
	first, err := b.Get(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Get(ctx, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(ctx, 0, 2); errs.KindOf(err) != errs.Busy {
		t.Errorf("a third tile: %v", err)
	}
	b.Forget() // what is lent stays, and its memory counts
	if _, err := b.Get(ctx, 0, 2); errs.KindOf(err) != errs.Busy {
		t.Errorf("a third tile after Forget: %v", err)
	}
	if first.Bytes()[0] != 0 || second.Bytes()[0] != 1 {
		t.Error("lent tiles have changed")
	}
	first.Release()
	get(t, b, 2, 0, 2)
	second.Release()
}

// An error of a read that nobody asked for is not told to who asks later and can be served.
func TestPrefetchThatFailed(t *testing.T) {
	c := &counting{File: create(t, cluster(t), "/failing")}
	tiles := numbered(t, c, 1, 12)
	b, err := tiles.Blocks(array.BlockOptions{Ahead: 2})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for i := range int64(2) {
		get(t, b, byte(i), 0, i)
	}
	c.mu.Lock()
	c.fail = broken
	c.mu.Unlock()
	if _, err := b.Get(context.Background(), 0, 2); !errors.Is(err, broken) {
		t.Errorf("a read that fails: %v", err)
	}
	c.mu.Lock()
	c.fail = nil
	c.mu.Unlock()
	for i := range int64(12) {
		get(t, b, byte(i), 0, i)
	}
	b.Close()
	if _, err := b.Get(context.Background(), 0, 0); errs.KindOf(err) != errs.Closed {
		t.Errorf("after Close: %v", err)
	}
	if s := b.Stats(); s.Memory != 0 {
		t.Errorf("after Close: %+v", s)
	}
}

// Many readers and writers of one cache: who has written a tile reads it.
func TestBlocksByManyAtOnce(t *testing.T) {
	c := &counting{File: create(t, cluster(t), "/many")}
	tiles := numbered(t, c, 8, 8)
	b, err := tiles.Blocks(array.BlockOptions{Memory: 32 * 24, Ahead: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx := context.Background()
	var wg sync.WaitGroup
	for r := range int64(8) {
		wg.Go(func() {
			for round := range byte(20) {
				for k := range int64(8) {
					p := bytes.Repeat([]byte{round}, 32)
					if err := b.Put(ctx, p, r, k); err != nil {
						t.Errorf("put: %v", err)
						return
					}
					// A neighbour's tile brings others' reads into play.
					for _, row := range []int64{r, (r + 1) % 8} {
						got, err := b.Get(ctx, row, k)
						if err != nil {
							t.Errorf("get: %v", err)
							return
						}
						if row == r && !bytes.Equal(got.Bytes(), p) {
							t.Errorf("tile %d,%d: %x, want %x", r, k, got.Bytes(), p)
						}
						got.Release()
					}
				}
			}
		})
	}
	wg.Wait()
}
