package list

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/seg"
)

// The patterns of IO500's ior: easy is a file for each rank, written in order; hard is one file in
// which the records of all ranks take turns.
const (
	ranks       = 4
	recordBytes = 47008
	batch       = 64                  // records that one transfer has
	chunk       = batch * recordBytes // bytes of one call, in all but one way
	rankBytes   = 32 * chunk
)

const (
	easy = "ior-easy, a file for each rank"
	hard = "ior-hard by vectors"
	each = "ior-hard, " + byRecord
)

// records is the case: four ranks write at once.
func (b *Bench) records() bench.Case {
	c := bench.Case{Bench: "list", Name: "ior-write", Size: chunk, Depth: ranks,
		Metric: bench.Bandwidth, About: "records of 47008 bytes of four ranks, interleaved in one " +
			"file, against a file for each"}
	for _, by := range b.By {
		for _, way := range []string{easy, hard, each} {
			w := &writing{bench: b, by: by, way: way}
			c.Add(bench.Contender{Provider: named(by.Provider, way), Ceiling: named(by.Provider, easy),
				Measure: w.measure})
		}
	}
	return c
}

// writing is one way of writing records.
type writing struct {
	bench *Bench
	by    By
	way   string

	f    [ranks]*client.File
	data [ranks][]byte
	counter
}

func (w *writing) open(ctx context.Context) (err error) {
	for rank := range w.f {
		name := "/ior-hard"
		if w.way == easy {
			name = fmt.Sprintf("/ior-easy-%d", rank)
		}
		if w.f[rank], err = w.bench.open(ctx, w.by.FS, name, 1<<20); err != nil {
			return err
		}
		w.data[rank] = make([]byte, chunk)
	}
	return nil
}

func (w *writing) measure(ctx context.Context, d time.Duration) (bench.Result, error) {
	if w.f[0] == nil {
		if err := w.open(ctx); err != nil {
			return bench.Result{}, err
		}
	}
	begin := time.Now()
	r, err := w.loaded(ctx, d, bench.Load{Depth: ranks, Size: chunk, Op: func(rank, i int) error {
		return w.once(ctx, rank, int64(i%(rankBytes/chunk)))
	}})
	for rank := range w.f {
		if err == nil {
			err = w.f[rank].Sync(ctx)
		}
	}
	r.Took = time.Since(begin) // with what makes it durable
	return r, err
}

// once writes the nth chunk of a rank.
func (w *writing) once(ctx context.Context, rank int, nth int64) error {
	f, data := w.f[rank], w.data[rank]
	first := (nth*batch*ranks + int64(rank)) * recordBytes
	var e client.Explanation
	switch w.way {
	case easy:
		_, err := f.Transfer(ctx, &client.Transfer{Write: true, Bufs: [][]byte{data},
			File: seg.Contig(nth*chunk, chunk), Explain: &e})
		w.add(&e)
		return err
	case hard:
		_, err := f.Transfer(ctx, &client.Transfer{Write: true, Bufs: [][]byte{data}, Explain: &e,
			File: seg.Strided(seg.Vector{Off: first, Block: recordBytes,
				Dims: []seg.Dim{{Count: batch, Stride: ranks * recordBytes}}})})
		w.add(&e)
		return err
	}
	for i := range int64(batch) {
		_, err := f.WriteAt(ctx, data[i*recordBytes:(i+1)*recordBytes],
			first+i*ranks*recordBytes)
		if err != nil {
			return err
		}
	}
	w.add(&client.Explanation{Requests: batch})
	return nil
}
