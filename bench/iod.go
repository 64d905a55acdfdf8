package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
)

// Iod is bench iod: what an I/O server in another process reaches, beside servers that are written
// without a cache of their own, and beside what its network and its store reach alone, measured by
// the code of bench net and bench store in the same run and in turns.
type Iod struct {
	Providers []string              // of those that Net.Open knows; tcp and shm have ceilings
	Net       *Net                  // the ceilings of the network, and the other process
	Store     *Store                // the ceilings of the store; nil: there are none
	Limits    map[string]msg.Limits // where protocols give way, as clients of a cluster have it
	Loop      string                // where a third process runs ServeLoop; "": none
	Bytes     int64                 // of data that no cache holds, 64 MiB at least
	Quick     bool                  // only the cases that are First
	Shrink    int64                 // tests: data and caches are so many times smaller; 0: 1

	sites map[IodSpec]*site
}

// What is measured with.
const (
	iodCached = 64 * mib  // data that all caches hold: more than a processor's
	iodCache  = 256 * mib // the cache that holds it
	iodSmall  = 64 * mib  // a cache that does not hold everything
	iodDirect = 64 * mib  // one that holds little of what there is
	iodDepth  = 4
)

// data is so many bytes of data, or of a cache, unless everything is smaller. A cache has to hold
// what one request may lend.
func (b *Iod) data(bytes int64) int64 {
	const least = 16 * mib
	return max(bytes/max(b.Shrink, 1), least)
}

// spinePace is what the load beside a memory-bound loop moves in a second: what each mode manages
// with cores to spare.
const spinePace = 200 * mib

// Cases are what is measured.
func (b *Iod) Cases() []Case {
	var cases []Case
	for _, write := range []bool{false, true} {
		for _, size := range []int{4 * kib, 16 * kib, 64 * kib, 256 * kib, mib, 4 * mib} {
			cases = append(cases, b.cached(write, size))
		}
	}
	cases = append(cases, b.rate4k(), b.durable(), b.cold())
	for _, tenths := range []int64{5, 9, 11, 20} {
		cases = append(cases, b.cacheSize(tenths))
	}
	for _, pace := range []string{paceSlow, paceNet, paceLarge} {
		for _, members := range []int{1, 2, 4, 8} {
			for _, depth := range []int{1, 2, 4} {
				cases = append(cases, b.members(pace, members, depth))
			}
		}
	}
	for depth := 1; depth <= 64; depth *= 2 {
		cases = append(cases, b.random(depth))
	}
	for _, pieces := range []int{16, 256, 4096} {
		cases = append(cases, b.list(pieces))
	}
	if b.Loop != "" {
		cases = append(cases, b.beside())
	}
	cases = append(cases, b.states(4*kib), b.states(mib))
	return slices.DeleteFunc(cases, func(c Case) bool {
		return len(c.contenders()) == 0 || b.Quick && !c.First
	})
}

// Close ends what the cases needed.
func (b *Iod) Close() error {
	var failed []error
	for _, s := range b.sites {
		if s.control != nil {
			failed = append(failed, s.close())
		}
	}
	return errors.Join(failed...)
}

// site is that of a spec, for one more contender.
func (b *Iod) site(s IodSpec) *site {
	if b.sites == nil {
		b.sites = map[IodSpec]*site{}
	}
	at := b.sites[s]
	if at == nil {
		at = &site{b: b, spec: s}
		b.sites[s] = at
	}
	at.uses++
	return at
}

func iodCase(name string, size, depth int, metric, about string) Case {
	return Case{Bench: "iod", Name: name, Size: int64(size), Depth: depth, Metric: metric,
		About: about}
}

// caller makes a contender of a load. It is held against the one that is named.
func (b *Iod) caller(s IodSpec, provider, name, metric, ceiling string, l iodLoad) Contender {
	call := &iodCaller{site: b.site(s), provider: provider, load: l}
	c := Contender{Provider: name, Depth: l.depth, Ceiling: ceiling, Close: call.close,
		Extras: func() []Extra { return call.last }}
	if metric == Rate {
		c = b.Net.rates(c, provider, call.stream)
	} else {
		c = b.Net.moves(c, provider, call.stream)
	}
	c.Measure = call.counted(c.Measure)
	return c
}

func metricOf(size int) string {
	if size < 64*kib {
		return Rate
	}
	return Bandwidth
}

// The names of ceilings.
func netCeiling(provider string) string { return provider + ", network alone" }

// ways are the servers beside each other.
func (b *Iod) ways(c *Case, p, ceiling string, l iodLoad) {
	ours := IodSpec{Kind: IodUnifier, Bytes: b.data(iodCached), Cache: b.data(iodCache),
		WriteBack: l.write}
	plain := l
	plain.how.NoSums = true
	c.Others = append(c.Others,
		b.caller(ours, p, p+", unifier", c.Metric, ceiling, l),
		b.caller(ours, p, p+", unifier, no CRC", c.Metric, ceiling, plain))
	for _, kind := range []string{IodNormal, IodMmap, IodKept} {
		s := IodSpec{Kind: kind, Bytes: b.data(iodCached)}
		c.Others = append(c.Others, b.caller(s, p, p+", "+kind, c.Metric, ceiling, l),
			b.caller(s, p, p+", "+kind+", no CRC", c.Metric, ceiling, plain))
	}
}

// cached is a size, through data that caches hold.
func (b *Iod) cached(write bool, size int) Case {
	verb := "read"
	if write {
		verb = "write"
	}
	c := iodCase("cached-"+verb+"-"+sizeName(size), size, iodDepth, metricOf(size),
		fmt.Sprintf("%ss of %s within %s, %d under way: four servers", verb, sizeText(int64(size)),
			sizeText(iodCached), iodDepth))
	c.First = size == mib
	l := iodLoad{write: write, class: stripe.Volatile, size: size, depth: iodDepth}
	for _, p := range b.Providers {
		ceiling := ""
		if size == bulkSize {
			op := uint16(opGive)
			if write {
				op = opTake
			}
			ceiling = netCeiling(p)
			alone := b.Net.bulkBy(p, ceiling, op, iodDepth, false)
			alone.Ceiling = ceiling
			c.Others = append(c.Others, alone)
			if !write {
				ceiling = walkCeiling(p)
				b.sameData(&c, p, l, b.Net.bulkOf(spec{Do: doServe, Provider: p, Walk: true}, ceiling,
					opGive, l.depth))
			}
		}
		b.ways(&c, p, ceiling, l)
	}
	return c
}

// sameData adds reads of the same data again and again, which is what the cases of bench net send,
// and a network that walks through as much data as the other contenders do, which is what they are
// held against: what stays in the processor's caches is quicker for everybody.
func (b *Iod) sameData(c *Case, p string, l iodLoad, far Contender) {
	ours := IodSpec{Kind: IodUnifier, Bytes: b.data(iodCached), Cache: b.data(iodCache)}
	l.bytes, l.random = int64(l.size), false
	plain := l
	plain.how.NoSums = true
	far.Ceiling = far.Provider
	c.Others = append(c.Others,
		b.caller(ours, p, p+", unifier, same data", c.Metric, netCeiling(p), l),
		b.caller(ours, p, p+", unifier, same data, no CRC", c.Metric, netCeiling(p), plain), far)
}

// walkCeiling is the name of a network that walks through much data.
func walkCeiling(provider string) string { return netCeiling(provider) + ", 64 MiB" }

// rate4k is small cached reads, many at once, beside rate-4k-d32 of bench net.
func (b *Iod) rate4k() Case {
	const size = 4 * kib
	c := iodCase(fmt.Sprintf("cached-read-4k-d%d", netDepth), size, netDepth, Rate,
		"reads of 4 KiB that the cache has, of the same and at random places, 32 under way")
	c.First = true
	l := iodLoad{random: true, size: size, depth: netDepth}
	alone := func(s spec, name string) Contender {
		call := &caller{n: b.Net, spec: s, op: opGive, size: size, depth: netDepth}
		c := b.Net.rates(call.contender(name), s.Provider, call.stream)
		c.Ceiling = name
		return c
	}
	for _, p := range b.Providers {
		c.Others = append(c.Others, alone(spec{Do: doServe, Provider: p}, netCeiling(p)))
		b.sameData(&c, p, l, alone(spec{Do: doServe, Provider: p, Walk: true}, walkCeiling(p)))
		b.ways(&c, p, walkCeiling(p), l)
	}
	return c
}

// StoreAlone is the ceiling that is the store without a server before it.
const StoreAlone = "store alone"

// storeCeiling is a contender of bench store.
func (b *Iod) storeCeiling(op storeOp) (Contender, bool) {
	if b.Store == nil {
		return Contender{}, false
	}
	c := b.Store.contender(op, StoreKind{Members: 1})
	c.Provider, c.Ceiling = StoreAlone, StoreAlone
	return c, true
}

// durable is small durable writes, beside the same case of bench store.
func (b *Iod) durable() Case {
	op := storeOp{random: true, class: stripe.Durable, size: 4 * kib, depth: 16}
	c := iodCase("durable-write-4k-d16", op.size, op.depth, Rate,
		"durable random writes of 4 KiB, 16 under way, beside the store alone")
	c.First = true
	alone, ok := b.storeCeiling(op)
	if ok {
		c.Others = append(c.Others, alone)
	}
	s := IodSpec{Kind: IodUnifier, Bytes: b.Bytes, Cache: b.data(iodSmall), WriteBack: true}
	l := iodLoad{write: true, random: true, class: stripe.Durable, size: op.size, depth: op.depth}
	for _, p := range b.Providers {
		c.Others = append(c.Others, b.caller(s, p, p, c.Metric, alone.Provider, l))
	}
	return c
}

// cold is a stream through more data than the cache holds.
func (b *Iod) cold() Case {
	c := iodCase("cold-read-1m", mib, iodDepth, Bandwidth,
		"a stream of 1 MiB reads that no cache has, 4 under way: direct, cached, and both ceilings")
	c.First = true
	op := storeOp{read: true, size: mib, depth: iodDepth}
	alone, ok := b.storeCeiling(op)
	if ok {
		c.Others = append(c.Others, alone)
	}
	s := IodSpec{Kind: IodUnifier, Bytes: b.Bytes, Cache: b.data(iodDirect), Cold: true}
	for _, p := range b.Providers {
		wire := b.Net.bulkBy(p, netCeiling(p), opGive, iodDepth, false)
		wire.Ceiling = netCeiling(p)
		c.Others = append(c.Others, wire)
		for _, mode := range coldModes() {
			l := iodLoad{size: mib, depth: iodDepth, how: mode.how}
			c.Others = append(c.Others, b.caller(s, p, p+", "+mode.name, c.Metric, alone.Provider, l))
		}
	}
	return c
}

// mode is a way to serve a request.
type mode struct {
	name string
	how  iod.How
}

func coldModes() []mode {
	return []mode{
		{"direct", iod.How{Mode: iod.Direct}},
		{"direct, no CRC", iod.How{Mode: iod.Direct, NoSums: true}},
		{"cached", iod.How{}},
		{"cached as a stream", iod.How{Policy: iod.PolicyStream}},
	}
}

// cacheSize has a working set of so many tenths of the cache.
func (b *Iod) cacheSize(tenths int64) Case {
	const size = 64 * kib
	c := iodCase(fmt.Sprintf("cache-x%d.%d", tenths/10, tenths%10), size, iodDepth, Bandwidth,
		fmt.Sprintf("random reads of 64 KiB of a working set %d.%d times the cache", tenths/10,
			tenths%10))
	s := IodSpec{Kind: IodUnifier, Bytes: 2 * b.data(iodSmall), Cache: b.data(iodSmall)}
	l := iodLoad{random: true, size: size, depth: iodDepth,
		bytes: b.data(iodSmall) / 10 * tenths &^ (size - 1)}
	for _, p := range b.Providers {
		c.Others = append(c.Others, b.caller(s, p, p, c.Metric, "", l))
	}
	return c
}

// random is 4 KiB at one depth, cached and direct, of data that the cache holds a part of.
func (b *Iod) random(depth int) Case {
	const size = 4 * kib
	c := iodCase(fmt.Sprintf("rand-read-4k-d%d", depth), size, depth, Rate,
		fmt.Sprintf("random reads of 4 KiB of more data than the cache holds, %d under way", depth))
	alone, ok := b.storeCeiling(storeOp{read: true, random: true, size: size, depth: depth})
	if ok {
		c.Others = append(c.Others, alone)
	}
	s := IodSpec{Kind: IodUnifier, Bytes: b.Bytes, Cache: b.data(iodDirect), Cold: true}
	for _, p := range b.Providers {
		for _, m := range []mode{{"cached", iod.How{UnitBytes: size}},
			{"direct", iod.How{Mode: iod.Direct}}} {
			l := iodLoad{random: true, size: size, depth: depth, how: m.how}
			c.Others = append(c.Others, b.caller(s, p, p+", "+m.name, c.Metric, alone.Provider, l))
		}
	}
	return c
}

// list is 1 MiB in pieces, every second one left out, beside a request for each piece.
func (b *Iod) list(pieces int) Case {
	c := iodCase(fmt.Sprintf("list-%d", pieces), mib, iodDepth, Bandwidth,
		fmt.Sprintf("cached reads of 1 MiB in %d pieces with gaps, as one request and as many", pieces))
	s := IodSpec{Kind: IodUnifier, Bytes: b.data(iodCached), Cache: b.data(iodCache)}
	for _, p := range b.Providers {
		l := iodLoad{size: mib, depth: iodDepth, pieces: pieces}
		apart := l
		apart.apart = true
		one := b.caller(s, p, p+", list", c.Metric, p+", one by one", l)
		one.Optional = true // a server may refuse what touches more of its cache than it lends
		c.Others = append(c.Others,
			b.caller(s, p, p+", one by one", c.Metric, p+", one by one", apart), one)
	}
	return c
}

// states is where requests spend their time at the server, one at a time.
func (b *Iod) states(size int) Case {
	c := iodCase("states-read-"+sizeName(size), size, 1, Bandwidth,
		"where reads of "+sizeText(int64(size))+" spend their time at the server, one at a time")
	hot := IodSpec{Kind: IodUnifier, Bytes: b.data(iodCached), Cache: b.data(iodCache)}
	cold := IodSpec{Kind: IodUnifier, Bytes: b.Bytes, Cache: b.data(iodDirect), Cold: true}
	for _, p := range b.Providers {
		for _, w := range []struct {
			spec IodSpec
			mode mode
		}{{hot, mode{"cached", iod.How{}}}, {cold, mode{"cold", iod.How{}}},
			{cold, mode{"direct", iod.How{Mode: iod.Direct}}}} {
			l := iodLoad{random: true, size: size, depth: 1, how: w.mode.how, states: true}
			c.Others = append(c.Others, b.caller(w.spec, p, p+", "+w.mode.name, c.Metric, "", l))
		}
	}
	return c
}

// IodBudget fits bench iod.
func IodBudget(quick, figures bool) Budget {
	switch {
	case quick:
		return Budget{Rounds: 3, Round: 200 * time.Millisecond, Total: 60 * time.Second}
	case figures:
		return Budget{Rounds: 9, Round: 300 * time.Millisecond}
	}
	return Budget{Rounds: 5, Round: 250 * time.Millisecond}
}
