// Package net is bench net: what package msg reaches between two processes, beside what they reach
// without it; and what package mover does with memory in pieces.
//
// It starts no process and opens no provider: package main does. Read cases.go first, then call.go
// (a contender), serve.go and handler.go (the other process, whose jobs are in jobs.go), layers.go
// and mover.go (cases of their own), copy.go (the ceiling of shared memory), sweeps.go (the
// papers' figures by size), registering.go (what registered memory costs), figures.go (what is
// promised) and tune.go. bench.go is what all of them share.
package net

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
)

// The providers that have ceilings of their own.
const (
	TCP   = "tcp"
	Shm   = "shm"
	Verbs = "verbs"
)

// Bench is what is measured.
type Bench struct {
	Providers []string       // of those that Open knows
	Open      partner.Opener // opens a provider for this side
	Peer      partner.Info
	Quick     bool // only the cases that are First
	Sweeps    bool // also the cases of sweeps.go

	meter  partner.Meter
	ladder *partner.Conn // nil: no ladder is served
}

// PingBytes is the size of the small request.
const PingBytes = 8

const (
	bulkSize  = bench.MiB
	bulkDepth = 4
	rateSize  = 4 * bench.KiB
	rateDepth = 32
)

func newCase(name, about string, size, depth int, metric string) bench.Case {
	return bench.Case{Bench: "net", Name: name, About: about, Size: int64(size), Depth: depth,
		Metric: metric}
}

// Costs has a contender tell what it costs both processes.
func (b *Bench) Costs(c bench.Contender, provider string) bench.Contender {
	b.meter.Control = b.Peer.Control
	measure := b.meter.Costs(c.Measure)
	c.Measure = func(ctx context.Context, d time.Duration) (bench.Result, error) {
		r, err := measure(ctx, d)
		if r.Bytes > 0 {
			r.Cost.ProviderCopies = providerCopies(provider, c.Protocol)
		}
		return r, err
	}
	return c
}

const inline = "inline" // the protocol that carries data within messages

// providerCopies is what a provider's documentation says of a byte on its way; nil where nobody
// says. TCP, and sockets of any kind: into the kernel and out of it. Shared memory: one copy into
// or out of a client's arena, two through the rings, which is how messages go. RDMA: none.
func providerCopies(provider, protocol string) *float64 {
	v := 0.0
	switch {
	case provider == TCP, provider == Shm && protocol == inline:
		v = 2
	case provider == Shm:
		v = 1
	case provider != Verbs:
		return nil
	}
	return &v
}
