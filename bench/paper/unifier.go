package paper

import "github.com/sluice-storage/sluice/bench"

const server = "An I/O server in a process of its own, its store on this host's disk, its " +
	"client on the same host. "

func unifier() []Experiment {
	return []Experiment{
		{Name: "U4",
			Title: "what registering and deregistering memory costs, one at a time and 60 at once",
			Claims: []Claim{{"registration", "the reason for a cache whose buffers stay registered", nil,
				""}},
			CannotBe: needsDevice},
		{Name: "U5", Title: "cached reads by size: our cache, a file's pages by mmap, and by copy",
			Parts: []Part{{"iod", []string{"cached-read-(4k|16k|64k|256k|1m|4m)"}, nil}},
			Claims: []Claim{
				{"peak", "630 MB/s; mmap 501, copy 324", nil, ""},
				{"through copying, large", "about 2.0", nil, ""},
				{"through mmap, large", "about 1.3", nil, ""},
			}, Differs: server + "The rows name what each of the four servers does."},
		{Name: "U6", Title: "cached writes by size",
			Parts:   []Part{{"iod", []string{"cached-write-(4k|16k|64k|256k|1m|4m)"}, nil}},
			Claims:  []Claim{{"peak", "561 MB/s; mmap 457, copy 258", nil, ""}},
			Differs: server},
		{Name: "U7", Title: "a working set around the size of the cache",
			Parts: []Part{{"iod", []string{"cache-x.*"}, nil}},
			Claims: []Claim{
				{"largest file that stays cached, of 420 MB of memory", "360 MB; with copying 340", nil, ""},
				{"beyond it", "20 MB/s, the disk", nil, ""},
			}, Differs: server + "Sizes are relative to the cache, and reads are random."},
		{Name: "U8",
			Title: "the whole file system: cached reads of 1 to 4 clients over four servers",
			Parts: []Part{{"files", []string{"read-c[124]-s4"}, nil}},
			Claims: []Claim{
				{"peak through copying, through mmap", "1.7, 1.3", nil, ""},
				{"4 clients through 1", "more than 1",
					through("read-c4-s4", "shm", "read-c1-s4", "shm"), bench.Times},
			}, Differs: cluster + "Servers without the cache are measured in U5, one at a time."},
	}
}

func exio() []Experiment {
	return []Experiment{
		{Name: "X5", Title: "16 pieces by size: gathered, packed, and contiguous",
			Parts: []Part{{"net", []string{"pieces-.*"}, []string{"shm"}}},
			Claims: []Claim{
				{"gathered through packed, at best", "up to 3 (2.7 in its table)",
					through("pieces-1m", "shm, gather", "pieces-1m", "shm, pack"), bench.Times},
				{"gathered through contiguous, large", "more than 0.95",
					through("pieces-4m", "shm, gather", "pieces-4m", "shm, contiguous"), bench.Times},
				{"gathered through contiguous, small", "at least 0.70",
					through("pieces-64k", "shm, gather", "pieces-64k", "shm, contiguous"), bench.Times},
			}, Differs: oneHost + "Pieces lie as far apart as they are long, not 1 MB."},
		{Name: "X6", Title: "the same over other networks",
			Parts: []Part{{"net", []string{"pieces-.*"}, nil}},
			Claims: []Claim{
				{"peak", "2906 MB/s (RDMA), 1181 (10GigE), 971 (IPoIB)",
					bench.Value("pieces-4m", "shm, gather", ""), "MB/s"},
				{"peak by TCP", "1181 MB/s (10GigE)", bench.Value("pieces-4m", "tcp, gather", ""), "MB/s"},
				{"small: RDMA through TCP", "less than 1",
					through("pieces-4k", "shm, gather", "pieces-4k", "tcp, gather"), bench.Times},
			}, Differs: oneHost},
		{Name: "X7", Title: "processor time of sender and receiver",
			Parts: []Part{{"net", []string{"pieces-(256k|4m)"}, nil}},
			Claims: []Claim{
				{"receiver over TCP", "saturated", remote("pieces-4m", "tcp, gather"), bench.PerGiB},
				{"sender over TCP", "40 % to 60 %", local("pieces-4m", "tcp, gather"), bench.PerGiB},
				{"receiver by RDMA", "little", remote("pieces-4m", "shm, gather"), bench.PerGiB},
				{"sender by RDMA", "little", local("pieces-4m", "shm, gather"), bench.PerGiB},
			}, Differs: oneHost + "Seconds of a processor for each GiB; over shared memory the " +
				"sender copies where the paper's card did."},
	}
}

func local(name, provider string) bench.Finder {
	return bench.CostOf(name, provider, func(c *bench.Cost) *float64 { return c.LocalCPU })
}

func remote(name, provider string) bench.Finder {
	return bench.CostOf(name, provider, func(c *bench.Cost) *float64 { return c.RemoteCPU })
}
