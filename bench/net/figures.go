package net

import (
	"fmt"

	"github.com/sluice-storage/sluice/bench"
)

// FigureCases are the names of the cases that figures are made of.
func FigureCases() []string {
	return []string{"rtt-8", "rtt-8-spin", "rate-4k-d32", "bulk-1m", "bulk-1m-out", contigName,
		"layers-8", "layers-8-spin"}
}

// Promises are what is asked of the message layer. Those against gRPC are not among them, see the
// module in grpcpeer.
func Promises() []bench.Promise {
	const most, least, x = bench.Most, bench.Least, bench.Times
	all := []bench.Promise{
		{Name: "tcp: rtt-8 against plain Go TCP", Bound: most, Limit: 1.25, Unit: x,
			Of: bench.Ratio("rtt-8", TCP)},
		{Name: "tcp: bulk-1m against plain Go TCP", Bound: least, Limit: 0.90, Unit: x,
			Of: bench.Ratio("bulk-1m", TCP)},
		{Name: "tcp: bulk-1m-out against plain Go TCP", Bound: least, Limit: 0.90, Unit: x,
			Of: bench.Ratio("bulk-1m-out", TCP)},
		{Name: "shm: rtt-8-spin", Bound: most, Limit: 1.5, Unit: "us",
			Of: bench.Value("rtt-8-spin", Shm, "")},
		{Name: "shm: rtt-8 asleep against plain Go TCP", Bound: most, Limit: 0.60, Unit: x,
			Of: bench.Ratio("rtt-8", Shm+", asleep")},
		{Name: "shm: bulk-1m against a shared-memory copy", Bound: least, Limit: 0.85, Unit: x,
			Of: bench.Ratio("bulk-1m", Shm)},
		{Name: "shm: bulk-1m-out against a shared-memory copy", Bound: least, Limit: 0.85, Unit: x,
			Of: bench.Ratio("bulk-1m-out", Shm)},
		{Name: "shm: bulk-1m-out, touched once more, against it", Bound: least, Limit: 0.85, Unit: x,
			Of: bench.Ratio("bulk-1m-out", Shm+", touched")},
		{Name: "shm: gather-16x64k against pack-16x64k", Bound: least, Limit: 1.5, Unit: x,
			Of: bench.Both(bench.Value(gatherName, Shm, ""), bench.Value(packName, Shm, ""),
				bench.Through)},
		{Name: "shm: gather-16x64k against contig-16x64k", Bound: least, Limit: 0.95, Unit: x,
			Of: bench.Ratio(gatherName, Shm)},
		{Name: "verbs: gather-16x64k, copies per byte", Bound: most, Limit: 0,
			Of: bench.CostOf(gatherName, Verbs, bench.Copies)},
		{Name: "verbs: gather-16x64k, work requests per destination", Bound: most, Limit: 1,
			Of: bench.Both(bench.Value(gatherName, Verbs, bench.Requests), destinations, bench.Through)},
		{Name: "verbs: gather-16x64k, doorbells", Bound: most, Limit: 1, Unit: "per move",
			Of: bench.Value(gatherName, Verbs, bench.Doorbells)},
	}
	all = append(append(all, layerPromises(TCP, 2)...), layerPromises(Shm, 0.5)...)
	for _, p := range []string{TCP, Shm} {
		all = append(all, bench.Promise{Name: p + ": allocations per request", Bound: most,
			Limit: 0.01, Unit: "per request", Of: bench.CostOf("rtt-8", p, bench.Allocs)})
	}
	return all
}

func destinations(bench.Rows) (float64, bool) { return pieces, true }

// layerPromises are what package msg adds to the fabric's round trip: the difference of the
// medians, and of the quickest rounds, which a busy machine disturbs less.
func layerPromises(provider string, limit float64) []bench.Promise {
	base, all := provider+", "+layerBase, provider+", "+layerMsg
	var list []bench.Promise
	for _, c := range []string{"layers-8", "layers-8-spin"} {
		name := fmt.Sprintf("%s: the message layer adds (%s", provider, c)
		list = append(list,
			bench.Promise{Name: name + ")", Bound: bench.Most, Limit: limit, Unit: "us",
				Of: bench.Both(bench.Value(c, all, ""), bench.Value(c, base, ""), bench.Minus)},
			bench.Promise{Name: name + ", quickest rounds)", Bound: bench.Most, Limit: limit, Unit: "us",
				Of: bench.Both(bench.Quickest(c, all), bench.Quickest(c, base), bench.Minus)})
	}
	return list
}
