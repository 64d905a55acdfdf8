package paper

import "github.com/sluice-storage/sluice/bench"

// pvfsTransfers are the figures about how data is moved: small, large, in pieces.
func pvfsTransfers() []Experiment {
	return []Experiment{smallData(), units(), tiled(), apart()}
}

func smallData() Experiment {
	at := func(size, by string) Cell { return value("small-"+size, by, "") }
	ratio := func(size, by string) bench.Finder {
		return through(at(size, "tcp, "+by), at(size, "tcp, server-driven"))
	}
	var graphs []Graph
	for _, p := range []string{"tcp", "shm"} {
		graphs = append(graphs, Graph{Title: "latency of a small write over " + p, X: requestSize,
			Unit: us, Ticks: sizes("128 1k 4k 16k 64k"),
			Lines: labels("?"+p+", inline=inline", p+", eager=fast (eager slots)",
				p+", server-driven=server-driven"), At: at})
	}
	return Experiment{Name: "P11",
		Title: "small data by protocol: inline, fast (eager) slots, server-driven",
		Parts: []Part{{Bench: "net", Cases: []string{"small-.*"}, Providers: []string{"tcp", "shm"}}},
		Same:  "M11", Graphs: graphs,
		Says: "Fast slots are best at every small size, inline about as good up to 4 kB, and what the " +
			"server fetches is worst.",
		Claims: []Claim{
			shape("1 KiB over TCP, fast through server-driven", "well below 1", ratio("1k", "eager"),
				under(0.9)),
			shape("1 KiB over TCP, inline through server-driven", "well below 1",
				ratio("1k", "inline"), under(0.9)),
			shape("4 KiB over TCP, fast through inline", "at most 1", through(at("4k", "tcp, eager"),
				at("4k", "tcp, inline")), under(1.1)),
			shape("64 KiB over TCP, fast through server-driven", "below 1", ratio("64k", "eager"),
				under(1)),
			absent("memory that is not registered, server-driven", "the worst of all",
				"without a device nothing is registered"),
		}, Differs: oneHost + "The product chooses as the paper did over TCP (inline, then slots, " +
			"then server-driven); over shared memory fetching is a copy by the receiver, and it " +
			"uses no slots there."}
}

func units() Experiment {
	var graphs []Graph
	for _, what := range []string{"read", "write"} {
		graphs = append(graphs, Graph{Title: what, X: "size of a unit", Unit: mbs,
			Ticks: sizes("64k 256k 1m 2m 8m 32m"), Lines: labels("shm", "tcp"),
			At: func(tick, line string) Cell { return value("unit-"+what+"-"+tick, line, "") }})
	}
	ratio := func(what, a, b string) Here {
		return Here{what, through(value("unit-"+what+"-"+a, "shm", ""),
			value("unit-"+what+"-"+b, "shm", "")), bench.Times}
	}
	return Experiment{Name: "P12", Title: "32 MB from and to one server in units of different size",
		Parts: []Part{{Bench: OwnBench, Cases: []string{"unit-(read|write)-.*"}}}, Graphs: graphs,
		Says: "Units of 2 MB and less overlap disk and network fully; larger ones do not, and very " +
			"small ones cost a little.",
		Claims: []Claim{
			{What: "2 MiB units through one of 32 MiB", Paper: "more than 1", Holds: over(1),
				Here: []Here{ratio("read", "2m", "32m"), ratio("write", "2m", "32m")}},
			{What: "64 KiB units through 2 MiB", Paper: "slightly less than 1", Holds: under(1),
				Here: []Here{ratio("read", "64k", "2m"), ratio("write", "64k", "2m")}},
		}, Differs: cluster + "Two units are under way. A request of 32 MiB is cut by the server " +
			"itself into units of 2 MiB, so that the right end need not fall as in the paper; small units " +
			"fit into the processors' caches, which its did not."}
}

func tiled() Experiment {
	at := func(what, by string) Cell { return value("tile-"+what, by, "") }
	ratio := func(what, how string) bench.Finder {
		return through(at(what, "shm, "+how), at(what, "tcp, "+how))
	}
	lists := func(what, p string) Here {
		return Here{what + ", " + p, through(at(what, p+", vector"), at(what, p+", rows")), bench.Times}
	}
	requests := func(how string) Here {
		return Here{how, of(value("tile-read", "shm, "+how, bench.Requests)), "requests"}
	}
	pair := func(what, paper, how string) Claim {
		return Claim{What: what, Paper: paper, Holds: over(1), Here: []Here{
			{"read", ratio("read", how), bench.Times}, {"write", ratio("write", how), bench.Times}}}
	}
	return Experiment{Name: "P13",
		Title: "tiles: 2 x 2 displays of 1024 x 768 elements of 24 bytes, with and without lists",
		Parts: []Part{{Bench: OwnBench, Cases: []string{"tile-(read|write)"}}},
		Graphs: []Graph{{Title: "four clients, a tile each", X: "", Unit: mbs, Bars: true,
			Ticks: labels("read", "write"), Lines: labels("shm, vector=native, list",
				"shm, rows=native, row by row", "tcp, vector=TCP, list", "tcp, rows=TCP, row by row"),
			At: at}},
		Says: "Lists save most of the requests, and make both transports faster; the native one " +
			"gains more by them.",
		Claims: []Claim{
			{What: "requests of one tile", Paper: "768, by lists 6",
				Here: []Here{requests("rows"), requests("vector")}},
			{What: "list through row by row", Paper: "more than 1 in all four", Holds: over(1),
				Here: []Here{lists("read", "shm"), lists("write", "shm"), lists("read", "tcp"),
					lists("write", "tcp")}},
			pair("by lists, native through TCP", "2.7 (read), 2.2 (write)", "vector"),
			pair("row by row, native through TCP", "1.79 (read), 1.93 (write)", "rows"),
		}, Differs: cluster + "A tile is one vector and one request to each of the four servers."}
}

func apart() Experiment {
	at := func(what, by string) Cell { return value("apart-"+what, by, "") }
	ratio := func(what string) bench.Finder {
		return through(at(what, "shm, hint"), at(what, "shm, no hint"))
	}
	return Experiment{Name: "P14",
		Title: "tiles that lie apart in memory, too, with and without allocation hints",
		Parts: []Part{{Bench: OwnBench, Cases: []string{"apart-(read|write)"}}},
		Graphs: []Graph{{Title: "four clients, a tile each", X: "", Unit: mbs, Bars: true,
			Ticks: labels("read", "write"), Lines: labels("shm, hint=native, hint",
				"shm, no hint=native, no hint", "tcp, hint=TCP, hint", "tcp, no hint=TCP, no hint"),
			At: at}},
		Says: "One registration of the whole allocation in place of 768 makes reads 85 % and writes " +
			"71 % faster.",
		Claims: []Claim{
			shape("read, with hints through without", "1.85", ratio("read"), over(1.05)),
			shape("write, the same", "1.71", ratio("write"), over(1.05)),
			absent("registrations of a tile", "768, with hints 6, of which 5 are cached",
				"nothing is registered without a device"),
		}, Differs: cluster + "Hints save registrations, of which there are none without an RDMA " +
			"device: here they only say that the rows lie in one allocation. Tiles have 512 x 384 " +
			"elements of 64 bytes, a quarter of the paper's, for the memory of one host."}
}
