package list

import "github.com/sluice-storage/sluice/bench"

// Promises are what is asked of lists and vectors, for each provider.
func Promises(providers []string) []bench.Promise {
	var all []bench.Promise
	least := func(name string, limit float64, of bench.Finder) {
		all = append(all, bench.Promise{Name: name, Bound: bench.Least, Limit: limit,
			Unit: bench.Times, Of: of})
	}
	for _, p := range providers {
		for _, c := range []string{"tile-read-24", "tile-write-24", "tile-read-64", "tile-write-64"} {
			least(p+": "+c+", vectors against one request a row", 5, bench.Ratio(c, named(p, byVector)))
			all = append(all, bench.Promise{Name: p + ": " + c + ", requests", Bound: bench.Most, Limit: 4,
				Of: bench.Value(c, named(p, byVector), bench.Requests)})
		}
		for _, c := range []string{"tile-read-64", "tile-write-64"} {
			hints := bench.Both(bench.Value(c, named(p, byHint), ""), bench.Value(c, named(p, byVector), ""),
				bench.Through)
			if p == "verbs" {
				least(p+": "+c+", hints against none", 1.3, hints)
			} else {
				all = append(all, bench.Promise{Name: p + ": " + c + ", hints against none",
					Bound: bench.Told, Unit: bench.Times, Of: hints})
			}
		}
		least(p+": ior-hard against ior-easy, writes", 0.6, bench.Ratio("ior-write", named(p, hard)))
	}
	return all
}
