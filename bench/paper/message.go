package paper

import "github.com/sluice-storage/sluice/bench"

const (
	oneHost = "Both processes share one host: shared memory and loopback TCP stand where the " +
		"paper has two hosts and a network card. Ratios compare, microseconds do not. "
	inGuest = "Between two processes of one host that has an RDMA device, or a virtual machine with " +
		"an emulated one (docs/ops/vmlab.md): there the device is the processor, which copies (and " +
		"which is emulated too, where there is no KVM), so that moving data is slow beside " +
		"registering it. "
)

// Words for axes and units.
const (
	requestSize = "size of a request"
	us          = "us"
	mbs         = "MB/s"
)

// network are the contenders of bench fabric that a paper compares.
func network() []string { return []string{"plain Go TCP", "tcp", "verbs", "ib_.*"} }

// message is the message paper, each of whose figures is there for two networks.
func message() []Experiment {
	return []Experiment{baseLatency(), layers(), latency(), throughput(), eager(),
		registrations(), service()}
}

func baseLatency() Experiment {
	return Experiment{Name: "M6", Title: "base latency of the network, without the middleware",
		Parts: []Part{{Bench: "fabric", Cases: []string{"rtt-.*"}, Ways: network()}},
		Graphs: []Graph{{Title: "one-way latency", X: "size of a message", Unit: us,
			Ticks: sizes("8 64 512 4k 64k"), Lines: labels("plain Go TCP", "tcp=tcp, ours", "?verbs"),
			At: func(tick, line string) Cell { return scaled(value("rtt-"+tick, line, ""), 0.5) }}},
		Says: "Latency is flat for small messages and grows with the size.",
		Claims: []Claim{
			told("one way, small, send and receive", "10.3 us (InfiniBand), 10.6 us (VIA)", us,
				of(scaled(value("rtt-8", "tcp", ""), 0.5))),
			shape("64 bytes through 8", "about 1", through(value("rtt-64", "tcp", ""),
				value("rtt-8", "tcp", "")), under(1.5)),
			shape("64 KiB through 8 bytes", "much more than 1", through(value("rtt-64k", "tcp", ""),
				value("rtt-8", "tcp", "")), over(2)),
			absent("one-sided write through send, InfiniBand", "less than 1",
				"one-sided writes are timed only where there is a device"),
		},
		Differs: oneHost + "One-way times are half of round trips; the paper's are half of its " +
			"tables' base."}
}

// layers are the paper's tables: what each layer adds to a round trip.
func layers() Experiment {
	at := func(p, layer string) Cell { return value("layers-8", p+", "+layer, "") }
	both := func(what, paper string, of func(p string) bench.Finder) Claim {
		return Claim{What: what, Paper: paper, Here: []Here{{"shm", of("shm"), us},
			{"tcp", of("tcp"), us}}}
	}
	added := func(layer, below string) func(string) bench.Finder {
		return func(p string) bench.Finder { return of(minus(at(p, layer), at(p, below))) }
	}
	part := func(p, layer, below string) Here {
		return Here{p, through(minus(at(p, layer), at(p, below)), at(p, "base")), bench.Times}
	}
	steps := []string{"base", "header", "adaption", "protocol", "threading"}
	return Experiment{Name: "MT1", Also: []string{"MT2"},
		Title: "where the time of an 8-byte round trip goes, layer by layer",
		Parts: []Part{{Bench: "net", Cases: []string{"layers-8"}, Providers: []string{"tcp", "shm"},
			Ways: []string{".*, (base|header|adaption|protocol|threading)"}}},
		Graphs: []Graph{{Title: "round trip with this layer and those below it", X: "layer",
			Unit: us, Bars: true, Ticks: labels(steps...), Lines: labels("shm", "tcp"),
			At: func(tick, line string) Cell { return at(line, tick) }}},
		Says: "The middleware adds little to the network: 4 of 24 us and 7 of 28 us; a thread " +
			"that polls adds about as much again.",
		Claims: []Claim{
			both("base", "20.56 us (InfiniBand), 21.28 us (VIA)",
				func(p string) bench.Finder { return of(at(p, "base")) }),
			both("header adds", "0.70 us, 4.86 us", added("header", "base")),
			both("adaption adds", "2.41 us, 0.41 us", added("adaption", "header")),
			both("protocol adds", "0.77 us, 1.30 us", added("protocol", "adaption")),
			both("thread (optional) adds", "3.08 us, 6.16 us", added("threading", "protocol")),
			{What: "header, adaption and protocol through the base", Paper: "0.19, 0.31",
				Holds: under(1), Here: []Here{part("shm", "protocol", "base"),
					part("tcp", "protocol", "base")}},
			{What: "thread through the base", Paper: "0.15, 0.29", Holds: under(1),
				Here: []Here{part("shm", "threading", "protocol"),
					part("tcp", "threading", "protocol")}},
		},
		Differs: oneHost + "What a layer adds is the difference of two measurements, and less " +
			"than 0 where they vary by more. A thread has to be woken here, on a processor that " +
			"others want, too."}
}

func latency() Experiment {
	at := func(size, by string) Cell { return value("latency-"+size, by, "") }
	return Experiment{Name: "M7", Also: []string{"M8"},
		Title: "latency of a request and its reply by size, and by who polls",
		Parts: []Part{{Bench: "net", Cases: []string{"latency-.*"},
			Providers: []string{"tcp", "shm"}, Ways: []string{".*, (polling|thread)"}}},
		Graphs: []Graph{{Title: "round trip", X: "size of the reply's data", Unit: us,
			Ticks: sizes("64 512 4k 32k 256k"),
			Lines: labels("shm, polling", "shm, thread", "tcp, polling", "tcp, thread"),
			At:    at}},
		Says: "A thread that polls adds a constant to each request, which large ones do not feel.",
		Claims: []Claim{
			{What: "round trip, small, polling", Paper: "24 us (InfiniBand), 28 us (VIA)",
				Here: []Here{{"shm", of(at("64", "shm, polling")), us},
					{"tcp", of(at("64", "tcp, polling")), us}}},
			{What: "a thread that polls adds", Paper: "3 us, 6 us",
				Here: []Here{{"shm", of(minus(at("64", "shm, thread"), at("64", "shm, polling"))), us},
					{"tcp", of(minus(at("64", "tcp, thread"), at("64", "tcp, polling"))), us}}},
			{What: "64 bytes, a thread through polling", Paper: "1.13, 1.21",
				Holds: func(v []float64) bool { return over(1)(v) && under(2)(v) },
				Here: []Here{{"shm", through(at("64", "shm, thread"), at("64", "shm, polling")),
					bench.Times}, {"tcp", through(at("64", "tcp, thread"), at("64", "tcp, polling")),
					bench.Times}}},
			shape("256 KiB over TCP, a thread through polling", "about 1",
				through(at("256k", "tcp, thread"), at("256k", "tcp, polling")), under(1.5)),
		}, Differs: oneHost + "Only the reply has data."}
}

func throughput() Experiment {
	at := func(size, by string) Cell { return value("throughput-"+size, by, "") }
	against := func(size, p string) Here {
		return Here{p, through(at(size, p+", thread"), at(size, p+", polling")), bench.Times}
	}
	return Experiment{Name: "M9", Also: []string{"M10"}, Title: "throughput by size, and by who polls",
		Parts: []Part{{Bench: "net", Cases: []string{"throughput-.*"},
			Providers: []string{"tcp", "shm"}, Ways: []string{".*, (polling|thread)"}}},
		Graphs: []Graph{{Title: "throughput, 8 under way", X: "size of the reply's data", Unit: mbs,
			Ticks: sizes("64 1k 4k 16k 64k 256k"),
			Lines: labels("shm, polling", "shm, thread", "tcp, polling", "tcp, thread"),
			At:    at}},
		Says: "A thread that polls costs small messages much of their throughput, and large ones " +
			"almost nothing.",
		Claims: []Claim{
			{What: "64 bytes: a thread through polling", Paper: "significantly less than 1",
				Holds: under(0.9), Here: []Here{against("64", "shm"), against("64", "tcp")}},
			{What: "256 KiB: the same", Paper: "almost 1", Holds: over(0.85),
				Here: []Here{against("256k", "shm"), against("256k", "tcp")}},
		}, Differs: oneHost + "Over shared memory a large message is one copy, so that waking the " +
			"thread is never small beside it."}
}

func eager() Experiment {
	at := func(size, by string) Cell { return value("small-"+size, by, "") }
	return Experiment{Name: "M11", Also: []string{"M12"},
		Title: "request data by eager write, or fetched by the receiver",
		Parts: []Part{{Bench: "net", Cases: []string{"small-.*"}, Providers: []string{"tcp", "shm"}}},
		Graphs: []Graph{{Title: "latency of a request", X: "size of the request's data", Unit: us,
			Ticks: sizes("4k 16k 64k"),
			Lines: labels("tcp, eager", "tcp, server-driven=tcp, fetched", "shm, eager",
				"shm, server-driven=shm, fetched"),
			At: at}},
		Says: "Eager write has the lower latency for large requests.",
		Claims: []Claim{
			shape("16 KiB over TCP, eager through fetched", "less than 1",
				through(at("16k", "tcp, eager"), at("16k", "tcp, server-driven")), under(1)),
			shape("64 KiB over TCP, eager through fetched", "less than 1",
				through(at("64k", "tcp, eager"), at("64k", "tcp, server-driven")), under(1)),
			{What: "64 KiB over shared memory, the same", Paper: "", Here: []Here{{"",
				through(at("64k", "shm, eager"), at("64k", "shm, server-driven")), bench.Times}}},
		}, Differs: oneHost + "Over shared memory the receiver copies out of the sender's memory by " +
			"itself, so that eager slots save nothing and the product does not use them there."}
}

func service() Experiment {
	at := func(time, by string) Cell { return value("service-"+time, "shm, "+by, "") }
	const poll = "polling, 1 worker"
	return Experiment{Name: "M17", Also: []string{"M18", "M19", "M20"},
		Title: "requests that take time to serve, by number of workers",
		Parts: []Part{{Bench: "net", Cases: []string{"service-.*"}, Providers: []string{"shm"}}},
		Graphs: []Graph{{Title: "requests served", X: "time of service", Unit: "op/s",
			Ticks: labels("1=1 us", "10=10 us", "100=100 us", "1000=1 ms"),
			Lines: labels(poll, "thread, 1 worker", "thread, 2 workers", "thread, 3 workers",
				"thread, 4 workers"),
			At: at}},
		Says: "For short requests one thread that polls serves more; for long ones several workers " +
			"use several processors, and with more threads than processors there is less again.",
		Claims: []Claim{
			shape("1 us of service: 3 workers behind a thread through one that polls", "less than 1",
				through(at("1", "thread, 3 workers"), at("1", poll)), under(1)),
			shape("1 ms of service: the same", "more than 1, up to the number of processors",
				through(at("1000", "thread, 3 workers"), at("1000", poll)), over(1)),
			shape("1 ms: more threads than processors (4 workers) through as many (2)",
				"less than 1", through(at("1000", "thread, 4 workers"),
					at("1000", "thread, 2 workers")), under(1)),
		}, Differs: oneHost + "The paper's servers have four processors each; here two processes " +
			"share those of one host, and workers are goroutines, of which any number shares them " +
			"without a loss."}
}

// registrations are figures of the message paper for which memory has to be registered.
func registrations() Experiment {
	const ticks, lines = "16k 64k 256k 1m", "each time|cached|for life"
	at := func(what, size, by string) Cell {
		return value("pinned-"+what+"-"+size, "verbs, "+by, "")
	}
	graph := func(what, title, unit string) Graph {
		return Graph{Title: title, X: requestSize, Unit: unit, Ticks: sizes(ticks),
			Lines: labels("each time=registered for each request", "cached=kept by a cache",
				"for life=registered for life"),
			At: func(tick, line string) Cell { return at(what, tick, line) }}
	}
	ratio := func(what, size string) bench.Finder {
		return through(at(what, size, "cached"), at(what, size, "each time"))
	}
	return Experiment{Name: "M13", Also: []string{"M14", "M15", "M16"}, Device: true,
		Title: "latency and throughput with and without a cache of registrations",
		Parts: []Part{{Bench: "net", Cases: []string{"pinned-.*"}, Providers: []string{"verbs"},
			Ways: []string{"verbs, (" + lines + ")"}}},
		Graphs: []Graph{graph("latency", "latency of a request with data", us),
			graph("throughput", "throughput, 4 under way", mbs)},
		Says: "A cache of registrations helps latency and throughput: significantly on " +
			"InfiniBand, noticeably on VIA.",
		Claims: []Claim{
			shape("16 KiB, latency, cached through each time", "less than 1", ratio("latency", "16k"),
				under(1)),
			shape("1 MiB, latency, the same", "less than 1", ratio("latency", "1m"), under(1)),
			shape("16 KiB, throughput, the same", "more than 1", ratio("throughput", "16k"), over(1)),
			shape("1 MiB, throughput, the same", "more than 1", ratio("throughput", "1m"), over(1)),
		}, Differs: inGuest + "The data is fetched by its receiver."}
}
