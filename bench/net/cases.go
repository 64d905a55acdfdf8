package net

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/msg"
)

// Budget fits a quick run of the named cases, all cases in some minutes, and gives the few cases
// that figures are made of all the time that they need.
func Budget(quick, figures bool) bench.Budget {
	switch {
	case quick:
		b := bench.Quick()
		b.Rounds, b.Total = 5, 18*time.Second
		return b
	case figures:
		return bench.Budget{Rounds: 9, Round: 250 * time.Millisecond}
	}
	return bench.Budget{Rounds: 5, Round: 200 * time.Millisecond}
}

// kind is a case: the same requests over sockets and over every provider.
type kind struct {
	name, about string
	metric      string
	size, depth int
	plain       func(addr string) bench.Measure
	plainDepth  int
	copied      bool // a copy through shared memory is the ceiling of shared memory
	ways        []way
}

// way is how a provider does a case.
type way struct {
	suffix   string // of the row's name, behind the provider's
	only     string // the provider that does it; "": all
	protocol string // for the row
	load     Load
}

func kinds() []kind {
	ping := Load{Op: OpEcho, Depth: 1}
	asleep, spin := ping, ping
	asleep.args.Asleep, spin.args.Progress = true, msg.ProgressPoll
	give, take := Bulk(OpGive), Bulk(OpTake)
	giveFewer, takeFewer, touched := give, take, take
	giveFewer.Depth, takeFewer.Depth = 2, 2
	touched.args.Touch = true
	pings := func(addr string) bench.Measure { return plain.Pings(addr, PingBytes) }
	return []kind{
		{name: "rtt-8", about: "a request with 8 bytes and its answer, one at a time",
			metric: bench.Latency, size: PingBytes, depth: 1, plain: pings, plainDepth: 1,
			ways: []way{{load: ping}, {suffix: ", asleep", only: Shm, load: asleep}}},
		{name: "rtt-8-spin", about: "the same with both sides polling all the time",
			metric: bench.Latency, size: PingBytes, depth: 1, plain: pings, plainDepth: 1,
			ways: []way{{load: spin}}},
		{name: "rate-4k-d32", about: "requests with 4 KiB of reply data, 32 under way",
			metric: bench.Rate, size: rateSize, depth: rateDepth, plainDepth: rateDepth,
			plain: func(addr string) bench.Measure {
				return plain.Trades(addr, plain.AskBytes, rateSize, rateDepth)
			},
			ways: []way{{protocol: inline, load: Rate()}}},
		{name: "bulk-1m", about: "requests with 1 MiB of reply data, 4 under way",
			metric: bench.Bandwidth, size: bulkSize, depth: bulkDepth, plainDepth: 1, copied: true,
			plain: func(addr string) bench.Measure { return plain.Reads(addr, bulkSize) },
			ways:  []way{{load: give}, {suffix: ", 2 under way", load: giveFewer}}},
		{name: "bulk-1m-out", about: "requests with 1 MiB of request data, 4 under way",
			metric: bench.Bandwidth, size: bulkSize, depth: bulkDepth, plainDepth: 1, copied: true,
			plain: func(addr string) bench.Measure { return plain.Writes(addr, bulkSize) },
			ways: []way{{load: take}, {suffix: ", 2 under way", load: takeFewer},
				{suffix: ", touched", only: Shm, load: touched}}},
	}
}

// Cases are what is measured.
func (b *Bench) Cases() []bench.Case {
	var cases []bench.Case
	for _, k := range kinds() {
		cases = append(cases, b.caseOf(&k))
	}
	cases = append(cases, b.noncontiguous(), b.layers(false), b.layers(true))
	if b.Sweeps {
		cases = append(cases, b.sweeps()...)
	}
	return slices.DeleteFunc(bench.Possible(cases), func(c bench.Case) bool {
		return b.Quick && !c.First
	})
}

// Close ends what the cases needed.
func (b *Bench) Close() error { return errors.Join(b.meter.Close(), b.ladder.Close()) }

// caseOf is a kind: its ceilings, then every provider in each of its ways.
func (b *Bench) caseOf(k *kind) bench.Case {
	c := newCase(k.name, k.about, k.size, k.depth, k.metric)
	c.First = true
	b.sockets(&c, k)
	if k.copied && slices.Contains(b.Providers, Shm) {
		c.Add(b.Costs(bench.Contender{Provider: SharedCopy, Ceiling: SharedCopy, Depth: 2,
			Measure: b.sharedCopies(k.size)}, Shm))
	}
	for _, p := range b.Providers {
		for _, w := range k.ways {
			if w.only != "" && w.only != p {
				continue
			}
			ours := b.Contender(p, p+w.suffix, w.protocol, w.load)
			ours.Ceiling = plain.TCP
			if k.copied && p == Shm {
				ours.Ceiling = SharedCopy
			}
			c.Add(ours)
		}
	}
	return c
}

// sockets adds the ceilings that are sockets: TCP always, unix where there is shared memory.
func (b *Bench) sockets(c *bench.Case, k *kind) {
	add := func(name, addr string) {
		by := bench.Contender{Provider: name, Ceiling: plain.TCP, Depth: k.plainDepth,
			Measure: k.plain(addr)}
		if k.metric != bench.Latency {
			by = b.Costs(by, TCP)
		}
		c.Add(by)
	}
	add(plain.TCP, b.Peer.Plain)
	if slices.Contains(b.Providers, Shm) {
		add(plain.Unix, b.Peer.Unix)
	}
}

// ServeLadder has the other process serve package msg on several providers, best first, the last
// one being the base of the ladder, until Close. It returns the address.
func (b *Bench) ServeLadder(ctx context.Context, above []string, base string) (addr string,
	err error) {
	if b.ladder, err = partner.Dial(ctx, b.Peer.Control); err != nil {
		return "", err
	}
	err = b.ladder.Ask(doLadder, ladderArgs{Base: base, Above: above}, &addr)
	return addr, err
}
