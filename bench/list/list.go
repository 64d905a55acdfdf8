// Package list is bench list: files read and written in pieces, one request for each piece, by
// lists and by vectors, with allocation hints and without, by each provider. Clusters and
// connections are package main's.
//
// Read list.go first, then tile.go (displays of a picture), ior.go (records of several ranks) and
// figures.go (what is promised).
package list

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/client"
)

// By is a client of the cluster that is measured.
type By struct {
	Provider string
	FS       *client.FS
}

// Bench has what its cases need until Close.
type Bench struct {
	By []By

	// Explain, if not nil, is told once of each way how a transfer was carried out.
	Explain func(text string)

	files  []*client.File
	memory []*client.Memory
}

// The ways of moving pieces, as rows name them behind the provider.
const (
	byRow     = "one request a row"
	byList    = "list"
	byVector  = "vectors"
	byHint    = "vectors with hints"
	byOwn     = "vectors, memory of Alloc"
	byRecord  = "one request a record"
	contender = "%s, %s"
)

func named(provider, way string) string { return fmt.Sprintf(contender, provider, way) }

// Cases are all that is measured. Files are made, and memory taken, when a case first needs them.
func (b *Bench) Cases() []bench.Case {
	var cases []bench.Case
	for _, p := range pictures() {
		cases = append(cases, b.tiles(p, false), b.tiles(p, true))
	}
	return append(cases, b.records())
}

// Close frees memory and closes files.
func (b *Bench) Close(ctx context.Context) error {
	var all []error
	for _, f := range b.files {
		all = append(all, f.Close(ctx))
	}
	for _, m := range b.memory {
		m.Free()
	}
	b.files, b.memory = nil, nil
	return errors.Join(all...)
}

// open opens a file, which is made with n bytes if it is not there.
func (b *Bench) open(ctx context.Context, fs *client.FS, name string,
	n int64) (*client.File, error) {
	f, err := fs.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	b.files = append(b.files, f)
	buf := make([]byte, 4<<20)
	for off := f.Size(); off < n && err == nil; off += int64(len(buf)) {
		_, err = f.WriteAt(ctx, buf[:min(int64(len(buf)), n-off)], off)
	}
	if err == nil {
		err = f.Sync(ctx)
	}
	return f, err
}

// counter counts the requests of transfers.
type counter struct{ requests, transfers atomic.Int64 }

func (c *counter) add(e *client.Explanation) {
	c.requests.Add(int64(e.Requests))
	c.transfers.Add(1)
}

// loaded runs operations and adds how many requests one of them took.
func (c *counter) loaded(ctx context.Context, d time.Duration, l bench.Load) (bench.Result, error) {
	c.requests.Store(0)
	c.transfers.Store(0)
	r, err := l.Run(ctx, d)
	if n := c.transfers.Load(); n > 0 && err == nil {
		r.Extras = append(r.Extras, bench.Extra{Metric: bench.Requests,
			Value: float64(c.requests.Load()) / float64(n)})
	}
	return r, err
}

// ended forgives the end of a file.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
