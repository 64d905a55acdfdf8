package list

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/clustertest"
	"github.com/sluice-storage/sluice/seg"
)

// TestTilesCoverThePicture: the tiles are all of the picture, once, and rows are the same bytes as
// vectors.
func TestTilesCoverThePicture(t *testing.T) {
	for _, p := range pictures() {
		count := make([]uint8, p.bytes()/p.element)
		for tile := range across * down {
			file, bufs := p.pieces(tile, make([]byte, p.memoryBytes()))
			if len(file) != rows || len(bufs) != rows {
				t.Fatalf("%d rows, %d buffers", len(file), len(bufs))
			}
			at := 0
			seg.Zip(seg.Strided(p.file(tile)), p.memory(tile), func(f, _ seg.Piece) bool {
				if f != file[at] {
					t.Fatalf("tile %d: row %d is %v, or %v", tile, at, f, file[at])
				}
				for i := f.Off / p.element; i < f.End()/p.element; i++ {
					count[i]++
				}
				at++
				return true
			})
		}
		if !bytes.Equal(count, bytes.Repeat([]byte{1}, len(count))) {
			t.Errorf("elements of %d bytes: some are in no tile, or in two", p.element)
		}
	}
}

// TestWays: all ways of reading a tile leave the same bytes.
func TestWays(t *testing.T) {
	ctx := context.Background()
	url, stop, err := clustertest.Start(4)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	fs, err := client.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	b := &Bench{By: []By{{"any", fs}}}
	defer func() {
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	p := pictures()[0]
	f, err := b.open(ctx, b.By[0].FS, "/tiles-24", p.bytes())
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{1})
	for off := int64(0); off < p.bytes(); off += int64(len(noise)) {
		rng.Read(noise)
		if _, err := f.WriteAt(ctx, noise, off); err != nil {
			t.Fatal(err)
		}
	}
	var first []byte
	for _, way := range []string{byRow, byList, byVector, byOwn} {
		x := &tiling{bench: b, by: b.By[0], way: way, picture: p}
		r, err := x.measure(ctx, time.Millisecond)
		if err != nil || r.Bytes == 0 || len(r.Extras) != 1 {
			t.Fatalf("%s: %+v, %v", way, r, err)
		}
		if n := r.Extras[0].Value; way != byRow && n > 4 {
			t.Errorf("%s: %v requests", way, n)
		}
		if err := x.once(ctx, 3); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = bytes.Clone(x.memory)
		}
		if !bytes.Equal(first, x.memory) {
			t.Errorf("%s: other bytes", way)
		}
	}
}

// TestPromisesHaveRows: what is promised is measured.
func TestPromisesHaveRows(t *testing.T) {
	b := &Bench{By: []By{{"shm", (*client.FS)(nil)}}}
	var rows bench.Rows
	for _, c := range b.Cases() {
		for _, x := range c.Contenders {
			rows = append(rows, bench.Row{Case: c.Name, Provider: x.Provider, Value: 1, Ratio: 1},
				bench.Row{Case: c.Name, Provider: x.Provider, Value: 1, Metric: bench.Requests})
		}
	}
	promises := Promises([]string{"shm"})
	if got := bench.Judge(promises, rows); len(got) != len(promises) {
		t.Errorf("%d of %d promises have rows", len(got), len(promises))
	}
}
