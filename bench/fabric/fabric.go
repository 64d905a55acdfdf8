// Package fabric is bench fabric: what the providers of package fabric reach between two processes,
// beside what the same sockets and devices do without them.
//
// It starts no process and knows no provider's code: package main does. Read fabric.go first (the
// cases), then provider.go (a provider at both ends) and op.go (what is done with it), end.go and
// serve.go (one side of it), perftest.go (the ceilings of RDMA).
package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/fabric"
)

// Bench is what is measured.
type Bench struct {
	Providers []string // of those that Open knows
	Open      partner.Opener
	Peer      partner.Info
	Quick     bool         // variants that are not asked for by name are left out
	Note      func(string) // is called with what is left out and why

	providers []*Provider
	perftest  *Perftest // nil: there are no ceilings for RDMA
	meter     partner.Meter
}

// Budget fits the many cases: many short rounds.
func Budget(quick bool) bench.Budget {
	b := bench.Budget{Rounds: 9, Round: 300 * time.Millisecond}
	if quick {
		b = bench.Quick()
		b.Rounds = 5
	}
	return b
}

// Operations under way at once.
const (
	writeDepth = 16
	bulkDepth  = 64 // posted in chains of bulkChain, of which the last is signalled
	bulkChain  = 16
	rateDepth  = 32
	pieces     = 16 // that a gathering write has
)

// family is a kind of operation in several sizes, each of them a case.
type family struct {
	name   string
	sizes  []int
	first  []int // those that are measured first, with their variants
	depth  int
	metric string

	plain     func(addr string, size int) bench.Measure // the ceiling of sockets
	tool      string                                    // the ceiling of devices; "": none
	toolDepth int                                       // 0: the tool chooses

	ours     func(p *Provider, size int) bench.Contender
	variant  string // the name of a second way, for the sizes in variants
	variants []int
	other    func(p *Provider, size int) bench.Contender
	metered  int // the size whose processor time is told
}

func families() []family {
	const k, m = bench.KiB, bench.MiB
	bulk := []int{4 * k, 64 * k, m, 4 * m}
	write := transfer{op: fabric.OpWrite, depth: writeDepth}
	chained := transfer{op: fabric.OpWrite, depth: bulkDepth, chain: bulkChain}
	small := transfer{op: fabric.OpWrite, depth: rateDepth, inline: true}
	read := transfer{op: fabric.OpRead, depth: writeDepth}
	trades := func(addr string, size int) bench.Measure {
		return plain.Trades(addr, size, size, rateDepth)
	}
	return []family{
		{name: "rtt", sizes: []int{8, 64, 512, 4 * k, 64 * k}, first: []int{8}, depth: 1,
			metric: bench.Latency, plain: plain.Pings, tool: sendLat, toolDepth: 1, ours: sleeps,
			variant: "polling", variants: []int{8}, other: polls},
		{name: "write", sizes: bulk, first: []int{64 * k, m}, depth: writeDepth,
			metric: bench.Bandwidth, plain: plain.Writes, tool: writeBW, ours: write.of,
			variant: "bulk", variants: bulk, other: chained.of, metered: m},
		{name: "read", sizes: bulk, first: []int{64 * k, m}, depth: writeDepth,
			metric: bench.Bandwidth, plain: plain.Reads, tool: readBW, ours: read.of},
		{name: "rate", sizes: []int{8}, depth: rateDepth, metric: bench.Rate, plain: trades,
			tool: writeBW, toolDepth: rateDepth, ours: small.of},
		// Perftest has no ceiling that flows back credits.
		{name: "send", sizes: []int{4 * k}, depth: recvDepth, metric: bench.Bandwidth,
			plain: plain.Writes, ours: sends},
	}
}

// Cases are what is measured, family by family. Close ends what they need.
func (b *Bench) Cases(ctx context.Context) ([]bench.Case, error) {
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	var cases []bench.Case
	for _, f := range families() {
		for _, size := range f.sizes {
			cases = append(cases, b.caseOf(&f, size))
		}
	}
	for _, piece := range []int{4 * bench.KiB, 64 * bench.KiB} {
		cases = append(cases, b.gather(piece))
	}
	return bench.Possible(cases), nil
}

// open opens the providers.
func (b *Bench) open(ctx context.Context) error {
	if b.providers != nil {
		return nil
	}
	b.meter.Control = b.Peer.Control
	for _, name := range b.Providers {
		p := &Provider{Name: name, Open: b.Open, Control: b.Peer.Control}
		b.providers = append(b.providers, p)
		if err := p.open(ctx); err != nil {
			return err
		}
		if p.rdma() {
			b.findPerftest(p)
		}
	}
	return nil
}

// findPerftest tells how to run the ceilings of a provider with RDMA, or why they are left out.
func (b *Bench) findPerftest(p *Provider) {
	dev, err := fabric.UpDevice(p.domain.Domain.Connector())
	if err == nil {
		err = perftestMissing()
	}
	if err != nil {
		b.Note("the ceilings of " + p.Name + " are left out: " + err.Error())
		return
	}
	b.perftest = &Perftest{Device: dev.Name, Port: dev.Port}
}

// Close ends what the cases needed.
func (b *Bench) Close() error {
	failed := []error{b.meter.Close()}
	for _, p := range b.providers {
		failed = append(failed, p.Close())
	}
	return errors.Join(failed...)
}

func newCase(name string, size, depth int, metric string) bench.Case {
	return bench.Case{Bench: "fabric", Name: name, Size: int64(size), Depth: depth, Metric: metric}
}

// caseOf is one size of a family: its ceilings, plain TCP for those without RDMA and perftest for
// the others, then ours.
func (b *Bench) caseOf(f *family, size int) bench.Case {
	c := newCase(f.name+"-"+bench.SizeName(size), size, f.depth, f.metric)
	c.First = slices.Contains(f.first, size)
	measured := func(by bench.Contender) bench.Contender {
		if size == f.metered {
			by.Measure = b.meter.CPUs(by.Measure)
		}
		return by
	}
	if slices.ContainsFunc(b.providers, func(p *Provider) bool { return !p.rdma() }) {
		c.Add(measured(bench.Contender{Provider: plain.TCP, Ceiling: plain.TCP,
			Measure: f.plain(b.Peer.Plain, size)}))
	}
	if b.perftest != nil && f.tool != "" {
		c.Add(b.perftest.contender(f.tool, size, f.toolDepth, f.metric))
	}
	for _, p := range b.providers {
		ours := f.ours(p, size)
		ours.Ceiling = plain.TCP
		if p.rdma() {
			ours.Ceiling = f.tool
		}
		c.Add(measured(ours))
		if !slices.Contains(f.variants, size) || b.Quick && !c.First {
			continue
		}
		other := f.other(p, size)
		other.Provider, other.Ceiling = p.Name+", "+f.variant, ours.Ceiling
		c.Add(other)
	}
	return c
}

// gather holds writes of many pieces against contiguous ones of the same provider.
func (b *Bench) gather(piece int) bench.Case {
	size := pieces * piece
	c := newCase(fmt.Sprintf("gather-%dx%s", pieces, bench.SizeName(piece)), size, writeDepth,
		bench.Bandwidth)
	for _, p := range b.providers {
		if p.domain.Domain.Caps().MaxSge < pieces {
			continue
		}
		whole := transfer{op: fabric.OpWrite, depth: writeDepth}.of(p, size)
		whole.Provider = p.Name + ", contiguous"
		whole.Ceiling = whole.Provider
		ours := transfer{op: fabric.OpWrite, depth: writeDepth, pieces: pieces}.of(p, size)
		ours.Ceiling = whole.Provider
		c.Add(whole, ours)
	}
	return c
}
