package iod

import (
	"fmt"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/net"
)

// The cases that figures are made of.
const (
	cachedRead  = "cached-read-1m"
	cachedWrite = "cached-write-1m"
	cachedRate  = "cached-read-4k-d32"
	durableRate = "durable-write-4k-d16"
	coldRead    = "cold-read-1m"
)

// FigureCases are the names of the cases that figures are made of.
func FigureCases() []string {
	return []string{cachedRead, cachedWrite, cachedRate, durableRate, coldRead,
		"members-(net|large)-[248]-d[14]"}
}

// allocsNone is what goroutines of the bench and timers of the runtime may allocate while requests
// do not: one in twenty requests at most.
const allocsNone = 0.05

// Promises are what is asked of an I/O server, by both providers.
func Promises() []bench.Promise {
	var all []bench.Promise
	for _, part := range []func(p string) []bench.Promise{
		cachedPromises, ratePromises, directPromises, durablePromises, costPromises,
	} {
		for _, p := range []string{net.TCP, net.Shm} {
			all = append(all, part(p)...)
		}
	}
	return all
}

// ratio is a promise about a row through its ceiling, followed by the same without checksums, which
// is only told.
func ratio(name, of, provider string, limit float64, withoutSums string) []bench.Promise {
	all := []bench.Promise{{Name: name, Bound: bench.Least, Limit: limit, Unit: bench.Times,
		Of: bench.Ratio(of, provider)}}
	if withoutSums != "" {
		all = append(all, bench.Promise{Name: withoutSums, Bound: bench.Told, Unit: bench.Times,
			Of: bench.Ratio(of, provider+noSums)})
	}
	return all
}

// cachedPromises are cached reads of 1 MiB beside the network and beside other servers.
func cachedPromises(p string) []bench.Promise {
	told := p + ": the same without CRC"
	all := append(ratio(p+": cached 1 MiB reads, depth 4, against bulk-1m", cachedRead,
		p+", unifier, same data", 0.90, told),
		ratio(p+": the same within 64 MiB, against a network that walks as far", cachedRead,
			p+", unifier", 0.90, told)...)
	for _, other := range []struct {
		kind  string
		bound bench.Bound
		limit float64
	}{{Normal, bench.Least, 1.5}, {Mmap, bench.Least, 1.2}, {Kept, bench.Told, 0}} {
		for _, sums := range []string{"", noSums} {
			better := better{p + ", unifier" + sums, p + ", " + other.kind + sums}
			all = append(all, bench.Promise{
				Name:  fmt.Sprintf("%s: cached 1 MiB reads%s, against %s", p, sums, other.kind),
				Bound: other.bound, Limit: other.limit, Unit: bench.Times, Of: better.best,
				Also: better.both})
		}
	}
	return all
}

func ratePromises(p string) []bench.Promise {
	told := p + ": the same without CRC"
	return append(ratio(p+": cached 4 KiB reads, depth 32, against rate-4k-d32", cachedRate,
		p+", unifier, same data", 0.70, told),
		ratio(p+": the same at random places of 64 MiB, against a network that walks as far",
			cachedRate, p+", unifier", 0.70, told)...)
}

func durablePromises(p string) []bench.Promise {
	return ratio(p+": durable 4 KiB writes, 16 outstanding, against the store", durableRate, p, 0.80,
		"")
}

// better holds ours against another server, both with checksums or both without, in bandwidth and
// in bytes per processor second of both processes: one of them has to be that much more.
type better struct{ ours, theirs string }

func (b better) ratios(rows bench.Rows) (speed, perProcessor float64, ok bool) {
	ours, theirs := rows.Find(cachedRead, b.ours, ""), rows.Find(cachedRead, b.theirs, "")
	if ours == nil || theirs == nil || theirs.Value == 0 {
		return 0, 0, false
	}
	if mine := processor(ours); mine > 0 {
		perProcessor = processor(theirs) / mine
	}
	return ours.Value / theirs.Value, perProcessor, true
}

func (b better) best(rows bench.Rows) (float64, bool) {
	speed, perProcessor, ok := b.ratios(rows)
	return max(speed, perProcessor), ok
}

// both says what the best was taken of.
func (b better) both(rows bench.Rows) string {
	speed, perProcessor, _ := b.ratios(rows)
	text := fmt.Sprintf(" (bandwidth %.2f x", speed)
	if perProcessor > 0 {
		text += fmt.Sprintf(", per processor second %.2f x", perProcessor)
	}
	return text + ")"
}

// processor is what both processes spend on a GiB; 0 if that was not measured.
func processor(r *bench.Row) float64 {
	if r.LocalCPU == nil || r.RemoteCPU == nil {
		return 0
	}
	return *r.LocalCPU + *r.RemoteCPU
}

// directPromises are streams past the cache, and one large request from throttled members.
func directPromises(p string) []bench.Promise {
	var all []bench.Promise
	slower := bench.Both(bench.Value(coldRead, StoreAlone, ""), bench.Value(coldRead, p+netAlone, ""),
		func(a, b float64) float64 { return min(a, b) })
	for _, sums := range []string{"", noSums} {
		all = append(all, bench.Promise{
			Name: p + ": direct 1 MiB reads, depth 4" + sums +
				", against the slower of store and network",
			Bound: bench.Least, Limit: 0.90, Unit: bench.Times,
			Of: bench.Both(bench.Value(coldRead, p+", direct"+sums, ""), slower, bench.Through)})
	}
	return append(append(all, memberPromises(p, "net", "")...),
		memberPromises(p, "large", " and 8 MiB")...)
}

// memberPromises are large requests from throttled members.
func memberPromises(p, pace, what string) []bench.Promise {
	var all []bench.Promise
	for _, members := range []int{2, 4, 8} {
		at := func(depth int, way string) bench.Finder {
			return bench.Value(fmt.Sprintf("members-%s-%d-d%d", pace, members, depth), p+", "+way, "")
		}
		name := fmt.Sprintf("%s: %d throttled members%s, depth 1, multiple streams, against ", p,
			members, what)
		all = append(all,
			bench.Promise{Name: name + "depth 4 plain", Bound: bench.Least, Limit: 0.85,
				Unit: bench.Times, Of: bench.Both(at(1, "multiple"), at(4, "plain"), bench.Through)},
			bench.Promise{Name: name + "depth 1 plain", Bound: bench.Least, Limit: 1.3,
				Unit: bench.Times, Of: bench.Both(at(1, "multiple"), at(1, "plain"), bench.Through)})
	}
	return all
}

// costPromises are what is to be nothing, or is printed.
func costPromises(p string) []bench.Promise {
	var all []bench.Promise
	for _, one := range []struct{ name, who, text string }{
		{cachedRead, p + ", unifier", "cached 1 MiB reads"},
		{cachedRate, p + ", unifier", "cached 4 KiB reads"},
		{cachedWrite, p + ", unifier", "cached 1 MiB writes"},
		{coldRead, p + ", direct", "direct 1 MiB reads"},
		{durableRate, p, "durable 4 KiB writes"},
	} {
		all = append(all,
			bench.Promise{Name: p + ": " + one.text + ", allocations per request", Bound: bench.Most,
				Limit: allocsNone, Of: bench.CostOf(one.name, one.who, bench.Allocs)},
			bench.Promise{Name: p + ": " + one.text + ", copies per byte", Bound: bench.Told,
				Of: bench.CostOf(one.name, one.who, bench.Copies),
				Also: func(rows bench.Rows) string {
					r := rows.Find(one.name, one.who, "")
					if r.ProviderCopies == nil {
						return ""
					}
					return fmt.Sprintf(" (the provider makes %.0f more)", *r.ProviderCopies)
				}})
	}
	return all
}
