package paper

import "github.com/sluice-storage/sluice/bench"

const server = "An I/O server in a process of its own, its store on this host's disk, its " +
	"client on the same host. "

func unifier() []Experiment {
	return []Experiment{registering(),
		cached("U5", "read", "630 MB/s; mmap 501, copy 324", "about 2.0", "about 1.3", "up to 2.7"),
		cached("U6", "write", "561 MB/s; mmap 457, copy 258", "2.2 at the peak",
			"1.2 at the peak", "more than 1"),
		cacheSizes(), wholeSystem(),
	}
}

func registering() Experiment {
	at := func(size, by string) Cell { return value("registering-"+size, "verbs, "+by, "") }
	both := func(size string) Cell { return plus(at(size, "register"), at(size, "deregister")) }
	return Experiment{Name: "U4", Device: true,
		Title: "what registering and deregistering memory costs, one at a time and 60 at once",
		Parts: []Part{{Bench: "net", Cases: []string{"registering-.*"}, Providers: []string{"verbs"}}},
		Graphs: []Graph{{Title: "time of one operation", X: "size of the memory", Unit: us,
			Ticks: sizes("4k 16k 64k 256k 1m"),
			Lines: labels("register", "deregister", "deregister 60=deregister, 60 in a row"), At: at}},
		Says: "Both cost so much that a cache's buffers should stay registered; 60 deregistrations " +
			"in one call cost less than one by one.",
		Claims: []Claim{
			told("registering and deregistering 4 KiB", "", us, of(both("4k"))),
			told("1 MiB", "", us, of(both("1m"))),
			shape("1 MiB through 4 KiB", "more than 1", through(both("1m"), both("4k")), over(1)),
			shape("4 KiB, 60 in a row through one at a time", "less than 1",
				through(at("4k", "deregister 60"), at("4k", "deregister")), under(1)),
		}, Differs: inGuest + "The kernel's interface has no call that ends several registrations, " +
			"as the paper's had: they are ended one after the other."}
}

// cached compares the paper's three servers: all of a request's data is in memory.
func cached(name, what, peaks, copying, mapping, small string) Experiment {
	const ticks = "4k 16k 64k 256k 1m 4m"
	at := func(size, by string) Cell { return megabytes("cached-"+what+"-"+size, by) }
	peak := func(by string) bench.Finder {
		var all []Cell
		for _, size := range sizes(ticks) {
			all = append(all, at(size.Key, "shm, "+by+", no CRC"))
		}
		return most(all...)
	}
	ratio := func(size, by string) bench.Finder {
		return through(at(size, "shm, unifier, no CRC"), at(size, "shm, "+by+", no CRC"))
	}
	var graphs []Graph
	for _, p := range []string{"shm", "tcp"} {
		graphs = append(graphs, Graph{Title: "over " + p, X: requestSize, Unit: mbs,
			Ticks: sizes(ticks), Lines: labels(p+", unifier, no CRC=Unifier (our cache)",
				p+", mmap, no CRC=mmap", p+", normal, no CRC=copy"), At: at})
	}
	return Experiment{Name: name,
		Title: "cached " + what + "s by size: our cache, a file's pages by mmap, and by copy",
		Parts: []Part{{Bench: "iod", Cases: []string{"cached-" + what + "-(4k|16k|64k|256k|1m|4m)"},
			Ways: []string{"(shm|tcp), (unifier|mmap|normal), no CRC"}}},
		Graphs: graphs,
		Says: "One cache for both is best at every size; mmap beats copying when requests are large, " +
			"and loses when they are small.",
		Claims: []Claim{
			{What: "peak", Paper: peaks, Here: []Here{{"Unifier", peak("unifier"), mbs},
				{"mmap", peak("mmap"), mbs}, {"copy", peak("normal"), mbs}}},
			shape("1 MiB, through copying", copying, ratio("1m", "normal"), over(1)),
			shape("1 MiB, through mmap", mapping, ratio("1m", "mmap"), over(1)),
			shape("4 KiB, through mmap", small, ratio("4k", "mmap"), over(1)),
		}, Differs: server + "Without checksums, as in the paper; 4 requests are under way. Mapped " +
			"memory is not registered for each request, which was the price of mmap there."}
}

func cacheSizes() Experiment {
	at := func(size, by string) Cell { return value("cache-x"+size, by, "") }
	ratio := func(a, b string) bench.Finder { return through(at(a, "shm"), at(b, "shm")) }
	return Experiment{Name: "U7", Title: "a working set around the size of the cache",
		Parts: []Part{{Bench: "iod", Cases: []string{"cache-x.*"}}},
		Graphs: []Graph{{Title: "random reads of 64 KiB", X: "working set through the cache",
			Unit: mbs, Ticks: labels("0.5", "0.9", "1.1", "2.0"), Lines: labels("shm", "tcp"), At: at},
			{Title: "reads that the cache has", X: "working set through the cache", Unit: "%",
				Ticks: labels("0.5", "0.9", "1.1", "2.0"), Lines: labels("shm", "tcp"),
				At: func(tick, line string) Cell {
					return value("cache-x"+tick, line, bench.CacheHits)
				}}},
		Says: "A file stays cached until it is as large as the memory for the cache; beyond it " +
			"everything is as slow as the disk.",
		Claims: []Claim{
			told("largest file that stays cached", "360 MB of 420 MB of memory (0.86); copying 340",
				"% hits at 0.9", of(value("cache-x0.9", "shm", bench.CacheHits))),
			shape("0.9 through 0.5 of the cache", "about 1", ratio("0.9", "0.5"), over(0.7)),
			shape("twice the cache through half of it", "0.04 (20 MB/s, the disk)",
				ratio("2.0", "0.5"), under(0.7)),
		}, Differs: server + "Sizes are relative to the cache. Reads are random: in order, as the " +
			"paper's, each would find what was dropped last, and its cliff is as sharp as that. " +
			"This disk is far quicker than 20 MB/s."}
}

func wholeSystem() Experiment {
	ratio := func(clients, provider string) Here {
		return Here{provider, through(region("read", clients, "4", provider),
			region("read", "1", "4", provider)), bench.Times}
	}
	return Experiment{Name: "U8",
		Title: "the whole file system: cached reads of 1 to 4 clients over four servers",
		Parts: []Part{{Bench: OwnBench, Cases: []string{"read-c[124]-s4"}}}, Same: "P7",
		Graphs: []Graph{{Title: "cached reads, all clients together", X: clientsAxis, Unit: mbs,
			Ticks: labels("1", "2", "4"), Lines: labels("shm", "tcp"),
			At: func(tick, line string) Cell { return region("read", tick, "4", line) }}},
		Says: "With Unifier the file system scales best, because the servers have less to do.",
		Claims: []Claim{
			{What: "4 clients through 1", Paper: "more than 1", Holds: over(1),
				Here: []Here{ratio("4", "shm"), ratio("4", "tcp")}},
			absent("peak through copying, through mmap", "1.7, 1.3",
				"servers without our cache are in U5, one at a time"),
		}, Differs: cluster}
}
