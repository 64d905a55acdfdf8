// Package meta is bench meta: what names cost. A metadata service and I/O servers run in processes
// of their own; this one is the client. Operations are done by requests to the service, one at a
// time and without anything in between ("service"), and by package client as programs do them
// ("client"). Those that change something are held against pebble alone, which writes the same
// transactions in the same run ("pebble alone").
//
// Beside rates it counts what an operation costs: processor time of client, service and I/O
// servers, and requests to each. It starts no process and opens no engine: package main does.
//
// Read meta.go first (the cases), then op.go (what is done), drive.go (by whom), bare.go (the
// ceiling), cost.go, big.go (what needs many files) and figures.go (what is promised).
package meta

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/client"
)

// The contenders.
const (
	Service = "service"      // requests to the metadata service, as meta/remote sends them
	Client  = "client"       // package client
	Pebble  = "pebble alone" // the engine without a service before it
)

// Site is a running cluster. All functions are safe to call between measurements.
type Site struct {
	FS *client.FS

	// CPU is the processor time that the service and all I/O servers have used.
	CPU func() (service, servers time.Duration, err error)

	// Requests is how many requests of clients the service, and all I/O servers, have served.
	Requests func(ctx context.Context) (service, servers uint64, err error)

	// Memory is the resident memory of the service in bytes, and Idle what it was before any load.
	Memory func() (int64, error)
	Idle   int64

	// Crowd makes many clients that stay until it is closed.
	Crowd func(ctx context.Context, n int) (Crowd, error)

	// Compact ends the cluster, compacts the metadata and tells how many bytes it takes on disk. The
	// site cannot be used after it.
	Compact func(ctx context.Context) (int64, error)
}

// Bench is what is measured.
type Bench struct {
	// Start starts the cluster; it is called once, by the first contender that needs it.
	Start func(ctx context.Context) (*Site, error)

	// OpenBare opens the ceiling, once.
	OpenBare func() (Bare, error)

	By      []string // of Service and Client; empty: both
	Quick   bool     // fewer depths
	Files   int      // of the cases with many files
	Handles int      // of the case with many handles
	Clients int      // of the case with many clients; 0: it is not measured

	site  *Site
	bare  Bare
	built int // sets of files that were made: each has a directory of its own
}

// Budget of the cases that are not big.
func Budget(quick bool) bench.Budget {
	if quick {
		return bench.Budget{Rounds: 3, Round: 250 * time.Millisecond, Total: 30 * time.Second}
	}
	return bench.Budget{Rounds: 5, Round: 500 * time.Millisecond}
}

// variant is a way of doing an operation.
type variant struct {
	depth int
	sync  bool // each operation is on disk when it is over
	many  bool // each goroutine works in a directory of its own
}

func (v variant) suffix() (s string) {
	if v.sync {
		s = "-sync"
	}
	if v.many {
		s += "-many"
	}
	return fmt.Sprintf("%s-d%d", s, v.depth)
}

// variants are those of an operation.
func (b *Bench) variants(o *op) (all []variant) {
	depths := []int{1, 8, 32, 64}
	if b.Quick {
		depths = []int{1, 32}
	}
	for _, d := range depths {
		all = append(all, variant{depth: d})
	}
	if o.many {
		all = append(all, variant{depth: 32, many: true})
	}
	if o.synced {
		for _, d := range depths {
			all = append(all, variant{depth: d, sync: true})
		}
	}
	return all
}

// Cases are what is measured without many files. Close ends what they need.
func (b *Bench) Cases() []bench.Case {
	var cases []bench.Case
	for i := range ops() {
		o := &ops()[i]
		for _, v := range b.variants(o) {
			c := bench.Case{Bench: "meta", Name: o.name + v.suffix(), Size: int64(o.size),
				Depth: v.depth, Metric: bench.Rate, About: o.about + v.about(),
				First: v.depth == 32 && !v.many && o.asked || v.depth == 1 && o.byClient != nil && !v.sync}
			b.contend(&c, o, v)
			cases = append(cases, c)
		}
	}
	return bench.Possible(cases)
}

func (v variant) about() string {
	s := fmt.Sprintf(", %d at once", v.depth)
	if v.many {
		s += ", each in a directory of its own"
	}
	if v.sync {
		s += ", each on disk when it is over"
	}
	return s
}

// contend adds those who can do an operation.
func (b *Bench) contend(c *bench.Case, o *op, v variant) {
	if o.bare != nil {
		c.Ceiling = Pebble
		c.Add(b.byPebble(o, v))
	}
	if o.byService != nil && b.wants(Service) {
		c.Add(b.contender(Service, o, v, o.byService))
	}
	if o.byClient != nil && b.wants(Client) {
		c.Add(b.contender(Client, o, v, o.byClient))
	}
}

func (b *Bench) wants(name string) bool {
	for _, n := range b.By {
		if n == name {
			return true
		}
	}
	return len(b.By) == 0
}

// open starts the cluster, once.
func (b *Bench) open(ctx context.Context) (*Site, error) {
	if b.site != nil {
		return b.site, nil
	}
	// What was started lives as long as the bench, not as long as the first measurement.
	site, err := b.Start(context.WithoutCancel(ctx))
	if err == nil {
		b.site = site
	}
	return site, err
}

// Close ends the ceiling; the cluster is ended by who has started it.
func (b *Bench) Close() error {
	if b.bare == nil {
		return nil
	}
	return b.bare.Close()
}
