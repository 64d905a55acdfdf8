// Package iod is bench iod: what an I/O server in another process reaches, beside servers that are
// written without a cache of their own, and beside what its network and its store reach alone,
// measured by the code of bench net and bench store in the same run and in turns.
//
// It starts no process and no server of ours: package main does. Read cases.go first, then bench.go
// (what all cases share), site.go (a server in the other process), load.go (a contender), naive.go
// (servers without a cache) and figures.go (what is promised).
package iod

import (
	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/bench/store"
	"github.com/sluice-storage/sluice/msg"
)

// Bench is what is measured.
type Bench struct {
	Providers []string              // of those that Net.Open knows; tcp and shm have ceilings
	Net       *net.Bench            // the ceilings of the network, and the other process
	Store     *store.Bench          // the ceilings of the store; nil: there are none
	Limits    map[string]msg.Limits // where protocols give way, as clients of a cluster have it
	Bytes     int64                 // of data that no cache holds, 64 MiB at least
	Quick     bool                  // only the cases that are First
	Shrink    int64                 // tests: data and caches are so many times smaller; 0: 1

	sites map[Spec]*site
}

// What is measured with.
const (
	hotBytes   = 64 * mib  // data that all caches hold: more than a processor's
	largeCache = 256 * mib // the cache that holds it
	smallCache = 64 * mib  // one that does not hold everything
	depth      = 4         // requests under way, unless a case says otherwise
)

// data is so many bytes of data, or of a cache, unless everything is smaller. A cache has to hold
// what one request may lend.
func (b *Bench) data(bytes int64) int64 {
	const least = 16 * mib
	return max(bytes/max(b.Shrink, 1), least)
}

// way is how a provider does a case: through a server, or by the network alone.
type way struct {
	suffix   string // of the row's name, behind the provider's
	against  string // the suffix of the one that it is held against; "": the case's ceiling
	net      *net.Load
	spec     Spec
	netPace  bool // the server's members are together as fast as the network
	load     load
	optional bool
}

// The suffixes of networks without a server: the data of the first stays in the processor's caches,
// the second one walks through as much as servers do.
const (
	netAlone = ", network alone"
	netWalks = netAlone + ", 64 MiB"
)

// StoreAlone is the ceiling that is the store without a server before it.
const StoreAlone = "store alone"

const noSums = ", no CRC"

func newCase(name, about string, size, depth int, metric string) bench.Case {
	return bench.Case{Bench: "iod", Name: name, About: about, Size: int64(size), Depth: depth,
		Metric: metric}
}

// fits is our server with data that its cache holds, exceeds one with more than it holds.
func (b *Bench) fits(writeBack bool) Spec {
	return Spec{Kind: Unifier, Bytes: b.data(hotBytes), Cache: b.data(largeCache),
		WriteBack: writeBack}
}

func (b *Bench) exceeds() Spec {
	return Spec{Kind: Unifier, Bytes: b.Bytes, Cache: b.data(smallCache), Cold: true}
}

// site is that of a spec, for one more contender.
func (b *Bench) site(s Spec) *site {
	if b.sites == nil {
		b.sites = map[Spec]*site{}
	}
	at := b.sites[s]
	if at == nil {
		at = &site{net: b.Net, limits: b.Limits, spec: s}
		b.sites[s] = at
	}
	at.uses++
	return at
}
