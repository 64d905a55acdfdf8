package array_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/array"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
)

// counting is a file that counts calls.
type counting struct {
	*client.File
	mu     sync.Mutex
	reads  int
	writes int
	bytes  int64
	fail   error
}

func (c *counting) ReadList(ctx context.Context, bufs [][]byte, a seg.Access) (int64, error) {
	c.mu.Lock()
	c.reads++
	c.bytes += a.Len()
	fail := c.fail
	c.mu.Unlock()
	if fail != nil {
		return 0, fail
	}
	return c.File.ReadList(ctx, bufs, a)
}

func (c *counting) WriteList(ctx context.Context, bufs [][]byte, a seg.Access) (int64, error) {
	c.mu.Lock()
	c.writes++
	c.mu.Unlock()
	return c.File.WriteList(ctx, bufs, a)
}

// A tile of the PVFS paper's display wall, in the middle and at the corner, is one call.
func TestATileIsOneCall(t *testing.T) {
	c := &counting{File: create(t, cluster(t), "/wall")}
	ctx := context.Background()
	element, err := array.ParseType("|V24")
	if err != nil {
		t.Fatal(err)
	}
	a, err := array.Create(ctx, c, array.Header{Type: element, Shape: []int64{384, 512}})
	if err != nil {
		t.Fatal(err)
	}
	tiles, err := a.Tiles(array.TileOptions{Shape: []int64{192, 256}, Ghost: []int64{2, 2}})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range [][]int64{{0, 0}, {1, 1}} {
		n, err := tiles.Bytes(at...)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, n)
		c.reads, c.writes = 0, 0
		if err := tiles.Write(ctx, p, at...); err != nil {
			t.Fatal(err)
		}
		if err := tiles.Read(ctx, p, at...); err != nil {
			t.Fatal(err)
		}
		if c.reads != 1 || c.writes != 1 {
			t.Errorf("tile %v: %d reads and %d writes", at, c.reads, c.writes)
		}
	}
}

// Many small pieces of few units of a server's cache take the memory of these units, and a list
// that is regular up to the end of a stripe unit is cut there.
func TestManySmallPieces(t *testing.T) {
	f := create(t, cluster(t), "/pieces")
	ctx := context.Background()
	kind, err := array.ParseType("uint8")
	if err != nil {
		t.Fatal(err)
	}
	const rows, row = 8192, 1025 // no divisor of a stripe unit
	a, err := array.Raw(f, 0, array.Header{Type: kind, Shape: []int64{rows, row}})
	if err == nil {
		err = f.Truncate(ctx, a.End())
	}
	if err != nil {
		t.Fatal(err)
	}
	column, err := a.All().Slice(array.Range(0, rows), array.Index(7))
	if err != nil {
		t.Fatal(err)
	}
	p, want := make([]byte, rows), make([]byte, rows)
	if err := column.Read(ctx, p, array.AsFile); err != nil || !bytes.Equal(p, want) {
		t.Fatalf("a column of zeroes: %v", err)
	}
	fill(rand.New(rand.NewPCG(1, 2)), want)
	if err := column.Write(ctx, want, array.AsFile); err != nil {
		t.Fatal(err)
	}
	if err := column.Read(ctx, p, array.AsFile); err != nil || !bytes.Equal(p, want) {
		t.Fatalf("a column: %v", err)
	}
}

func TestElementsThatAreNotThere(t *testing.T) {
	f := create(t, cluster(t), "/short")
	ctx := context.Background()
	kind, _ := array.ParseType("float64")
	a, err := array.Create(ctx, f, array.Header{Type: kind, Shape: []int64{100}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(ctx, a.End()-1); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 800)
	if err := a.All().Read(ctx, p, array.AsFile); errs.KindOf(err) != errs.IO {
		t.Errorf("an array that was cut: %v", err)
	}
	if err := a.All().Read(ctx, p[1:], array.AsFile); errs.KindOf(err) != errs.Invalid {
		t.Errorf("too little memory: %v", err)
	}
	for _, text := range []string{"100", "-101", "0,0", "...,...", "::0", "1:2:3:4", "x", ""} {
		slices, err := array.ParseSlices(text)
		if err == nil {
			_, err = a.All().Slice(slices...)
		}
		if (errs.KindOf(err) == errs.Invalid) != (text != "") {
			t.Errorf("slice %q: %v", text, err)
		}
	}
}
