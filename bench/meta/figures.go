package meta

import "github.com/sluice-storage/sluice/bench"

// FigureCases are those that promises are made of.
func FigureCases() []string {
	return []string{"make-d32", "stat-d32", "write-d1", "make-sync-d32", "stat-d1", "absent-d1",
		"readdir-d1", bigIdle, bigDirectory, bigHandles, bigBytes}
}

// Promises are what is asked of the metadata.
func Promises() []bench.Promise {
	least := func(text, name, by string, limit float64, unit string) bench.Promise {
		return bench.Promise{Name: text, Bound: bench.Least, Limit: limit, Unit: unit,
			Of: bench.Value(name, by, "")}
	}
	most := func(text, name, by, metric string, limit float64, unit string) bench.Promise {
		return bench.Promise{Name: text, Bound: bench.Most, Limit: limit, Unit: unit,
			Of: bench.Value(name, by, metric)}
	}
	const none = 0.01 // requests that renew something now and then are not the operation's
	return []bench.Promise{
		least("files made, 32 at once, over the network", "make-d32", Service, 25000, "op/s"),
		least("attributes, 32 at once, over the network", "stat-d32", Service, 100000, "op/s"),
		least("one client alone: 4 KiB files created, written and closed", "write-d1", Client, 8000,
			"op/s"),
		most("the same: processor time of all processes", "write-d1", Client, bench.TotalCPU, 150,
			"us"),
		{Name: "synced creates, 32 at once, against pebble alone", Bound: bench.Least, Limit: 0.60,
			Unit: bench.Times, Of: bench.Ratio("make-sync-d32", Service)},
		most("one client alone: requests for a repeated stat", "stat-d1", Client, bench.NameMsgs, none,
			""),
		most("one client alone: requests for a name that is not there", "absent-d1", Client,
			bench.NameMsgs, none, ""),
		most("one client alone: requests for a repeated listing", "readdir-d1", Client,
			bench.NameMsgs, none, ""),
		{Name: "a large directory: rate of making at the end against the start", Bound: bench.Least,
			Limit: 0.70, Unit: bench.Times, Of: bench.Value(bigDirectory, Service, bench.EndToStart)},
		// The engine's cache fills up meanwhile (16 MiB and what three memtables leave of 48 MiB);
		// what is above that grows with nothing.
		most("listing it: memory of service and client", bigDirectory, Service, bench.ListMemory, 96,
			"MiB"),
		most("closing the last of many handles, against the first", bigHandles, Service,
			bench.EndToStart, 1.5, bench.Times),
		most("metadata of a file after compaction", bigBytes, Service, "", 600, "B"),
		most("idle service", bigIdle, Service, "", 60, "MiB"),
	}
}
