package store

import "github.com/sluice-storage/sluice/bench"

// allocsNone is what the runtime itself, the bench and a checkpoint now and then may allocate while
// requests do not: one in five requests at most.
const allocsNone = 0.2

// Promises are what is asked of the local store.
func Promises() []bench.Promise {
	const (
		ours       = "logstore"
		smallWrite = "durable-rand-write-d16-4k"
		smallRead  = "rand-read-d32-4k"
		largeWrite = "durable-seq-write-d4-1m"
		largeRead  = "seq-read-d4-1m"
	)
	ratio := func(text, name string, limit float64) bench.Promise {
		return bench.Promise{Name: text + ", against plain io_uring", Bound: bench.Least, Limit: limit,
			Unit: bench.Times, Of: bench.Ratio(name, ours)}
	}
	most := func(text, name, metric string, limit float64, unit string) bench.Promise {
		return bench.Promise{Name: text, Bound: bench.Most, Limit: limit, Unit: unit,
			Of: bench.Value(name, ours, metric)}
	}
	return []bench.Promise{
		ratio("durable random writes of 4 KiB at depth 16, three wraps of the log", smallWrite, 0.60),
		ratio("durable sequential writes of 1 MiB, depth 1", "durable-seq-write-d1-1m", 0.80),
		ratio("durable sequential writes of 1 MiB, depth 4", largeWrite, 0.80),
		ratio("random reads of 4 KiB at depth 32", smallRead, 0.85),
		ratio("reads of 1 MiB, depth 1", "seq-read-d1-1m", 0.95),
		ratio("reads of 1 MiB, depth 4", largeRead, 0.95),
		most("restart with a full log of the default size", "restart-full-log", bench.Restart, 5, "s"),
		most("allocations per durable write of 4 KiB", smallWrite, bench.Allocations, allocsNone, ""),
		most("allocations per read of 4 KiB", smallRead, bench.Allocations, allocsNone, ""),
		most("allocations per durable write of 1 MiB", largeWrite, bench.Allocations, allocsNone, ""),
		most("allocations per read of 1 MiB", largeRead, bench.Allocations, allocsNone, ""),
		most("bytes copied for each byte written in 1 MiB", largeWrite, bench.Copied, 0, ""),
		most("bytes copied for each byte read in 1 MiB", largeRead, bench.Copied, 0, ""),
	}
}
