package list

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/seg"
)

// A wall of 2 x 2 displays shows one picture; each display is a tile of it. mpi-tile-io and the
// paper on list I/O measure with these sizes.
const (
	across, down  = 2, 2
	columns, rows = 1024, 768 // of a display
)

// picture is a file of elements, row by row.
type picture struct {
	element int64
	apart   bool // the program has the whole picture in memory; else one tile
}

func pictures() []picture { return []picture{{24, false}, {64, true}} }

func (p picture) row() int64   { return columns * p.element } // of a tile, in bytes
func (p picture) tile() int64  { return rows * p.row() }
func (p picture) bytes() int64 { return across * down * p.tile() }

// memoryBytes is what the program has.
func (p picture) memoryBytes() int64 {
	if p.apart {
		return p.bytes()
	}
	return p.tile()
}

// file is where a tile lies in the picture.
func (p picture) file(tile int) seg.Vector {
	y, x := int64(tile/across), int64(tile%across)
	return seg.Vector{Off: y*rows*across*p.row() + x*p.row(), Block: p.row(),
		Dims: []seg.Dim{{Count: rows, Stride: across * p.row()}}}
}

// memory is where a tile lies in the program's memory.
func (p picture) memory(tile int) seg.Access {
	if p.apart {
		return seg.Strided(p.file(tile))
	}
	return seg.Contig(0, p.tile())
}

// pieces are the rows of a tile, in the file and in memory.
func (p picture) pieces(tile int, memory []byte) (file []seg.Piece, bufs [][]byte) {
	v := p.file(tile)
	for i := range int64(rows) {
		off := v.Off + i*v.Dims[0].Stride
		at := i * p.row()
		if p.apart {
			at = off
		}
		file = append(file, seg.Piece{Off: off, Len: p.row()})
		bufs = append(bufs, memory[at:at+p.row():at+p.row()])
	}
	return file, bufs
}

// tiles is a case: a display after the other is read, or written and synced.
func (b *Bench) tiles(p picture, write bool) bench.Case {
	verb := "read"
	if write {
		verb = "write"
	}
	c := bench.Case{Bench: "list", Name: fmt.Sprintf("tile-%s-%d", verb, p.element), Size: p.tile(),
		Depth: 1, Metric: bench.Bandwidth, About: fmt.Sprintf("%s tiles of a picture with elements "+
			"of %d bytes; memory apart: %v", verb, p.element, p.apart)}
	for _, by := range b.By {
		ways := []string{byRow, byList, byVector, byOwn}
		if p.apart {
			ways = append(ways, byHint)
		}
		for _, way := range ways {
			t := &tiling{bench: b, by: by, way: way, picture: p, write: write}
			c.Add(bench.Contender{Provider: named(by.Provider, way),
				Ceiling: named(by.Provider, byRow), Measure: t.measure})
		}
	}
	return c
}

// tiling is one way of moving tiles.
type tiling struct {
	bench   *Bench
	by      By
	way     string
	picture picture
	write   bool

	f      *client.File
	memory []byte
	counter
}

func (t *tiling) open(ctx context.Context) (err error) {
	n := int(t.picture.memoryBytes())
	if t.way == byOwn {
		m := t.by.FS.Alloc(n)
		t.bench.memory = append(t.bench.memory, m)
		t.memory = m.Bytes()
	} else {
		t.memory = make([]byte, n)
	}
	clear(t.memory) // so that all pages are there
	t.f, err = t.bench.open(ctx, t.by.FS, fmt.Sprintf("/tiles-%d", t.picture.element),
		t.picture.bytes())
	if err != nil || t.bench.Explain == nil {
		return err
	}
	var e client.Explanation
	if t.way != byRow {
		if _, err = t.f.Transfer(ctx, t.transfer(0, &e)); err == nil {
			t.bench.Explain(fmt.Sprintf("tile of %d-byte elements, %s, write %v:\n%s", t.picture.element,
				named(t.by.Provider, t.way), t.write, &e))
		}
	}
	return ended(err)
}

func (t *tiling) measure(ctx context.Context, d time.Duration) (bench.Result, error) {
	if t.f == nil {
		if err := t.open(ctx); err != nil {
			return bench.Result{}, err
		}
	}
	return t.loaded(ctx, d, bench.Load{Depth: 1, Size: int(t.picture.tile()),
		Op: func(_, i int) error {
			err := t.once(ctx, i%(across*down))
			if err == nil && t.write {
				err = t.f.Sync(ctx)
			}
			return err
		}})
}

// once moves a tile.
func (t *tiling) once(ctx context.Context, tile int) error {
	var e client.Explanation
	if t.way != byRow {
		_, err := t.f.Transfer(ctx, t.transfer(tile, &e))
		t.add(&e)
		return ended(err)
	}
	move := t.f.ReadAt
	if t.write {
		move = t.f.WriteAt
	}
	file, bufs := t.picture.pieces(tile, t.memory)
	for i := range file {
		if _, err := move(ctx, bufs[i], file[i].Off); ended(err) != nil {
			return err
		}
	}
	t.add(&client.Explanation{Requests: len(file)}) // at least: some rows are cut by a stripe unit
	return nil
}

func (t *tiling) transfer(tile int, e *client.Explanation) *client.Transfer {
	x := &client.Transfer{Write: t.write, Bufs: [][]byte{t.memory}, Explain: e,
		Memory: t.picture.memory(tile), File: seg.Strided(t.picture.file(tile))}
	switch t.way {
	case byList:
		file, bufs := t.picture.pieces(tile, t.memory)
		x.Bufs, x.Memory, x.File = bufs, seg.Access{}, seg.List(file)
	case byHint:
		x.Parents = []client.Parent{{Bytes: t.memory}}
	}
	return x
}
