package iod

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/bench/store"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/stripe"
)

// Budget fits a quick run of the First cases into a minute, and gives figures more rounds.
func Budget(quick, figures bool) bench.Budget {
	switch {
	case quick:
		return bench.Budget{Rounds: 3, Round: 200 * time.Millisecond, Total: 60 * time.Second}
	case figures:
		return bench.Budget{Rounds: 9, Round: 300 * time.Millisecond}
	}
	return bench.Budget{Rounds: 5, Round: 250 * time.Millisecond}
}

// kind is a case: one load, on servers of several kinds, by every provider.
type kind struct {
	name, about string
	size, depth int
	metric      string
	first       bool
	store       *store.Op // what the store alone does: all are held against that; nil: nothing
	only        string    // the provider that can do it; "": all can
	ways        []way
}

// withoutSums are ways, each followed by the same without checksums.
func withoutSums(ways ...way) []way {
	var all []way
	for _, w := range ways {
		plain := w
		plain.suffix += noSums
		plain.load.how.NoSums = true
		all = append(all, w, plain)
	}
	return all
}

// Cases are what is measured.
func (b *Bench) Cases() []bench.Case {
	var kinds []kind
	for _, write := range []bool{false, true} {
		for _, size := range []int{4 * kib, 16 * kib, 64 * kib, 256 * kib, mib, 4 * mib} {
			kinds = append(kinds, b.cached(write, size))
		}
	}
	kinds = append(kinds, b.rate4k(), b.durable(), b.cold())
	for _, tenths := range []int64{5, 9, 11, 20} {
		kinds = append(kinds, b.cacheSize(tenths))
	}
	for _, large := range []bool{false, true} {
		for _, members := range []int{1, 2, 4, 8} {
			for _, depth := range []int{1, 4} {
				kinds = append(kinds, b.members(large, members, depth))
			}
		}
	}
	for depth := 1; depth <= 64; depth *= 2 {
		kinds = append(kinds, b.random(depth))
	}
	for _, pieces := range []int{16, 256, 4096} {
		kinds = append(kinds, b.list(pieces))
	}
	kinds = append(kinds, b.states(4*kib), b.states(mib), b.arrivals())
	var cases []bench.Case
	for i := range kinds {
		cases = append(cases, b.caseOf(&kinds[i]))
	}
	return slices.DeleteFunc(bench.Possible(cases), func(c bench.Case) bool {
		return b.Quick && !c.First
	})
}

// Close ends what the cases needed.
func (b *Bench) Close() error {
	var failed []error
	for _, s := range b.sites {
		failed = append(failed, s.close())
	}
	return errors.Join(failed...)
}

// caseOf is a kind: the store alone, then every provider in each of its ways.
func (b *Bench) caseOf(k *kind) bench.Case {
	c := newCase(k.name, k.about, k.size, k.depth, k.metric)
	c.First = k.first
	if k.store != nil && b.Store != nil {
		c.Ceiling = StoreAlone
		alone := b.Store.Contender(*k.store, store.Kind{Members: 1})
		alone.Provider = StoreAlone
		c.Add(alone)
	}
	for _, p := range b.Providers {
		for _, w := range k.ways {
			if k.only == "" || k.only == p {
				c.Add(b.contender(p, w))
			}
		}
	}
	return c
}

func (b *Bench) contender(provider string, w way) bench.Contender {
	var c bench.Contender
	if w.net != nil {
		c = b.Net.Contender(provider, provider+w.suffix, "", *w.net)
	} else {
		if w.netPace {
			w.spec.atNetPace(provider)
		}
		c = b.through(provider, w)
	}
	if w.against != "" {
		c.Ceiling = provider + w.against
	}
	c.Optional = w.optional
	return c
}

// through is a contender that does a load through a server.
func (b *Bench) through(provider string, w way) bench.Contender {
	c := &caller{site: b.site(w.spec), provider: provider, load: w.load}
	if w.load.arrivals {
		return bench.Contender{Provider: provider + w.suffix, Measure: c.trace, Close: c.close}
	}
	by := b.Net.Costs(bench.Contender{Provider: provider + w.suffix, Depth: w.load.depth,
		Measure: c.measure, Close: c.close}, provider)
	by.Measure = c.counted(by.Measure)
	return by
}

func metricOf(size int) string {
	if size < 64*kib {
		return bench.Rate
	}
	return bench.Bandwidth
}

// servers are the ways of the four servers beside each other.
func (b *Bench) servers(against string, l load) []way {
	all := []way{{suffix: ", unifier", against: against, load: l, spec: b.fits(l.write)}}
	for _, other := range []string{Normal, Mmap, Kept} {
		all = append(all, way{suffix: ", " + other, against: against, load: l,
			spec: Spec{Kind: other, Bytes: b.data(hotBytes)}})
	}
	return withoutSums(all...)
}

// networks are the network alone, reads of the same data again and again, which is what it sends,
// and a network that walks through as much data as the servers do: what stays in the processor's
// caches is quicker for all contenders.
func (b *Bench) networks(alone net.Load, l load) []way {
	walks := alone
	walks.Walk = true
	l.bytes, l.random = int64(l.size), false
	same := way{suffix: ", unifier, same data", against: netAlone, load: l, spec: b.fits(false)}
	all := append([]way{{suffix: netAlone, against: netAlone, net: &alone}}, withoutSums(same)...)
	return append(all, way{suffix: netWalks, against: netWalks, net: &walks})
}

// cached is a size, through data that caches hold.
func (b *Bench) cached(write bool, size int) kind {
	verb := "read"
	if write {
		verb = "write"
	}
	k := kind{name: "cached-" + verb + "-" + bench.SizeName(size), size: size, depth: depth,
		metric: metricOf(size), first: size == mib,
		about: fmt.Sprintf("%ss of %s within %s, %d under way: four servers", verb,
			bench.SizeText(int64(size)), bench.SizeText(hotBytes), depth)}
	l := load{write: write, class: stripe.Volatile, size: size, depth: depth}
	against := ""
	if size == mib && write {
		alone := net.Bulk(net.OpTake)
		against = netAlone
		k.ways = []way{{suffix: netAlone, against: netAlone, net: &alone}}
	} else if size == mib {
		against = netWalks
		k.ways = b.networks(net.Bulk(net.OpGive), l)
	}
	k.ways = append(k.ways, b.servers(against, l)...)
	return k
}

// rate4k is small cached reads, many at once, beside rate-4k-d32 of bench net.
func (b *Bench) rate4k() kind {
	alone := net.Rate()
	l := load{random: true, size: alone.Size, depth: alone.Depth}
	return kind{name: "cached-read-4k-d32", size: l.size, depth: l.depth, metric: bench.Rate,
		first: true,
		about: "reads of 4 KiB that the cache has, of the same and at random places, 32 under way",
		ways:  append(b.networks(alone, l), b.servers(netWalks, l)...)}
}

// durable is small durable writes, beside the same case of bench store.
func (b *Bench) durable() kind {
	op := store.Op{Random: true, Class: stripe.Durable, Size: 4 * kib, Depth: 16}
	s := b.exceeds()
	s.Cold, s.WriteBack = false, true
	return kind{name: "durable-write-4k-d16", size: op.Size, depth: op.Depth, metric: bench.Rate,
		first: true, about: "durable random writes of 4 KiB, 16 under way, beside the store alone",
		store: &op,
		ways: []way{{spec: s, load: load{write: true, random: true, class: op.Class, size: op.Size,
			depth: op.Depth}}}}
}

// cold is a stream through more data than the cache holds.
func (b *Bench) cold() kind {
	alone := net.Bulk(net.OpGive)
	direct := way{suffix: ", direct", spec: b.exceeds(),
		load: load{size: mib, depth: depth, how: iod.How{Mode: iod.Direct}}}
	cached, stream := direct, direct
	cached.suffix, cached.load.how = ", cached", iod.How{}
	stream.suffix, stream.load.how = ", cached as a stream", iod.How{Policy: iod.PolicyStream}
	return kind{name: "cold-read-1m", size: mib, depth: depth, metric: bench.Bandwidth, first: true,
		about: "a stream of 1 MiB reads that no cache has, 4 under way: direct, cached, and both " +
			"ceilings",
		store: &store.Op{Read: true, Size: mib, Depth: depth},
		ways: slices.Concat([]way{{suffix: netAlone, against: netAlone, net: &alone}},
			withoutSums(direct), []way{cached, stream})}
}

// cacheSize has a working set of so many tenths of the cache.
func (b *Bench) cacheSize(tenths int64) kind {
	const size = 64 * kib
	return kind{name: fmt.Sprintf("cache-x%d.%d", tenths/10, tenths%10), size: size, depth: depth,
		metric: bench.Bandwidth,
		about: fmt.Sprintf("random reads of 64 KiB of a working set %d.%d times the cache", tenths/10,
			tenths%10),
		ways: []way{{
			spec: Spec{Kind: Unifier, Bytes: 2 * b.data(smallCache), Cache: b.data(smallCache)},
			load: load{random: true, size: size, depth: depth,
				bytes: b.data(smallCache) / 10 * tenths &^ (size - 1)}}}}
}

// members is one large request after the other from throttled members.
func (b *Bench) members(large bool, members, depth int) kind {
	pace, size := "net", mib
	if large {
		pace, size = "large", iod.TransferMax
	}
	s := b.exceeds()
	s.Bytes, s.Members = b.data(hotBytes), members
	k := kind{name: fmt.Sprintf("members-%s-%d-d%d", pace, members, depth), size: size, depth: depth,
		metric: bench.Bandwidth, first: large && members == 4,
		about: fmt.Sprintf("direct reads of %s from throttled members: %d, under way: %d; plain, "+
			"single and multiple streams", bench.SizeText(int64(size)), members, depth)}
	for _, streams := range []struct {
		name string
		mode uint8
	}{{"plain", iod.StreamsPlain}, {"single", iod.StreamsSingle}, {"multiple", iod.StreamsMultiple}} {
		k.ways = append(k.ways, way{suffix: ", " + streams.name, against: ", plain", spec: s,
			netPace: true, load: load{size: size, depth: depth,
				how: iod.How{Mode: iod.Direct, Streams: streams.mode}}})
	}
	return k
}

// random is 4 KiB at one depth, cached and direct, of data that the cache holds a part of.
func (b *Bench) random(depth int) kind {
	const size = 4 * kib
	l := load{random: true, size: size, depth: depth, how: iod.How{UnitBytes: size}}
	direct := l
	direct.how = iod.How{Mode: iod.Direct}
	return kind{name: fmt.Sprintf("rand-read-4k-d%d", depth), size: size, depth: depth,
		metric: bench.Rate,
		about: fmt.Sprintf("random reads of 4 KiB of more data than the cache holds, %d under way",
			depth),
		store: &store.Op{Read: true, Random: true, Size: size, Depth: depth},
		ways: []way{{suffix: ", cached", spec: b.exceeds(), load: l},
			{suffix: ", direct", spec: b.exceeds(), load: direct}}}
}

// list is 1 MiB in pieces, every second one left out, beside a request for each piece.
func (b *Bench) list(pieces int) kind {
	const apart = ", one by one"
	l := load{size: mib, depth: depth, pieces: pieces}
	many := l
	many.apart = true
	return kind{name: fmt.Sprintf("list-%d", pieces), size: mib, depth: depth,
		metric: bench.Bandwidth,
		about: fmt.Sprintf("cached reads of 1 MiB in %d pieces with gaps, as one request and as many",
			pieces),
		ways: []way{{suffix: apart, against: apart, spec: b.fits(false), load: many},
			// A server may refuse what touches more of its cache than it lends.
			{suffix: ", list", against: apart, spec: b.fits(false), load: l, optional: true}}}
}

// states is where requests spend their time at the server, one at a time.
func (b *Bench) states(size int) kind {
	l := load{random: true, size: size, depth: 1, states: true}
	direct := l
	direct.how.Mode = iod.Direct
	return kind{name: "states-read-" + bench.SizeName(size), size: size, depth: 1,
		metric: bench.Bandwidth,
		about: "where reads of " + bench.SizeText(int64(size)) +
			" spend their time at the server, one at a time",
		ways: []way{{suffix: ", cached", spec: b.fits(false), load: l},
			{suffix: ", cold", spec: b.exceeds(), load: l},
			{suffix: ", direct", spec: b.exceeds(), load: direct}}}
}
