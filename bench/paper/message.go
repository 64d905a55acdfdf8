package paper

import "github.com/sluice-storage/sluice/bench"

const (
	oneHost = "Both processes share one host: shared memory and loopback TCP stand where the " +
		"paper has two hosts and a network card. Ratios compare, microseconds do not. "
	needsDevice = "It needs an RDMA device, whose memory is registered: this host has none. In " +
		"the virtual machines of docs/ops/vmlab.md there is an emulated one."
)

// message is the message paper, each of whose figures is there for two networks.
func message() []Experiment {
	return []Experiment{
		{Name: "M6", Title: "base latency and bandwidth of the network, without the middleware",
			Parts: []Part{{"fabric", []string{"rtt-.*", "write-(4k|64k|1m)"}, nil}},
			Claims: []Claim{
				{"one way, small, send and receive on VIA", "about 10 us (half of the 21.28 us round trip)",
					half(bench.Value("rtt-8", "tcp", "")), "us"},
			},
			Differs: oneHost + "One-way times are half of round trips."},
		{Name: "MT1", Also: []string{"MT2"},
			Title: "where the time of an 8-byte round trip goes, layer by layer",
			Parts: []Part{{"net", []string{"layers-8", "layers-8-spin"}, nil}},
			Claims: []Claim{
				{"base", "20.56 us (InfiniBand), 21.28 us (VIA)", nil, ""},
				{"header", "0.70 us, 4.86 us", nil, ""},
				{"adaption", "2.41 us, 0.41 us", nil, ""},
				{"protocol", "0.77 us, 1.30 us", nil, ""},
				{"thread (optional)", "3.08 us, 6.16 us", nil, ""},
			},
			Differs: oneHost + "Rows add one layer after the other; their differences are the " +
				"paper's lines."},
		{Name: "M7", Also: []string{"M8"},
			Title: "latency of a request and its reply by size, and by who polls",
			Parts: []Part{{"net", []string{"latency-.*"}, nil}},
			Claims: []Claim{
				{"round trip, small, polling", "24 us (InfiniBand), 28 us (VIA)",
					bench.Value("latency-64", "shm, polling", ""), "us"},
				{"a thread that polls adds", "3 us (InfiniBand), 6 us (VIA)",
					bench.Both(bench.Value("latency-64", "shm, thread", ""),
						bench.Value("latency-64", "shm, polling", ""), bench.Minus), "us"},
			}, Differs: oneHost + "Only the reply has data."},
		{Name: "M9", Also: []string{"M10"}, Title: "throughput by size, and by who polls",
			Parts: []Part{{"net", []string{"throughput-.*"}, nil}},
			Claims: []Claim{
				{"small messages: a thread through polling", "significantly less than 1",
					through("throughput-64", "shm, thread", "throughput-64", "shm, polling"), bench.Times},
				{"large messages: the same", "almost 1",
					through("throughput-256k", "shm, thread", "throughput-256k", "shm, polling"), bench.Times},
			}, Differs: oneHost},
		{Name: "M11", Also: []string{"M12"},
			Title: "request data by eager write, or fetched by the receiver",
			Parts: []Part{{"net", []string{"small-(4k|16k|64k)"}, nil}},
			Claims: []Claim{
				{"latency at 64 KiB, eager through fetched", "less than 1",
					through("small-64k", "tcp, eager", "small-64k", "tcp, server-driven"), bench.Times},
			}, Differs: oneHost + "Over shared memory the receiver copies out of the sender's " +
				"memory by itself, so that eager slots save nothing and the product does not use them there."},
		{Name: "M13", Also: []string{"M14", "M15", "M16"},
			Title:    "latency and throughput with and without a cache of registrations",
			Claims:   []Claim{{"effect", "significant on InfiniBand, noticeable on VIA", nil, ""}},
			CannotBe: needsDevice},
		{Name: "M17", Also: []string{"M18", "M19", "M20"},
			Title: "requests that take time to serve, by number of workers",
			Parts: []Part{{"net", []string{"service-.*"}, []string{"shm"}}},
			Claims: []Claim{
				{"1 us of service: 3 workers behind a thread through one that polls", "less than 1",
					through("service-1", "shm, thread, 3 workers", "service-1", "shm, polling, 1 worker"),
					bench.Times},
				{"1 ms of service: the same", "more than 1, up to the number of processors",
					through("service-1000", "shm, thread, 3 workers", "service-1000",
						"shm, polling, 1 worker"), bench.Times},
				{"more threads than processors", "less than with as many",
					through("service-1000", "shm, thread, 4 workers", "service-1000",
						"shm, thread, 2 workers"), bench.Times},
			}, Differs: oneHost + "The client's process needs processors, too, and threads are " +
				"goroutines but for the one that polls."},
	}
}

// half is half of a figure.
func half(of bench.Finder) bench.Finder {
	return func(rows bench.Rows) (float64, bool) {
		v, ok := of(rows)
		return v / 2, ok
	}
}
