package paper

import "github.com/sluice-storage/sluice/bench"

const cluster = "Four I/O servers in memory, the metadata service and all clients share one " +
	"host and its processors, so that more clients or servers add work and no hardware. TCP " +
	"over loopback stands for the paper's TCP over InfiniBand (IBNice), shared memory for " +
	"its native transport. "

func pvfs() []Experiment {
	return []Experiment{
		{Name: "PT2", Also: []string{"P5"},
			Title: "the raw network: latency, one-sided writes and reads by size",
			Parts: []Part{{"fabric", []string{"rtt-8", "write-.*", "read-.*"}, nil}},
			Claims: []Claim{
				{"4 bytes one way", "40.1 us (IBNice), 9.2 us (send), 6.0 us (write), 12.4 us (read)",
					half(bench.Value("rtt-8", "tcp", "")), "us"},
				{"write", "827 MB/s", bench.Value("write-1m", "tcp", ""), "MB/s"},
				{"read", "816 MB/s", bench.Value("read-1m", "tcp", ""), "MB/s"},
				{"at 4 KiB, read through write", "well below 1",
					through("read-4k", "tcp", "write-4k", "tcp"), bench.Times},
			}, Differs: oneHost},
		{Name: "P7", Also: []string{"P8"},
			Title: "clients x servers: each client reads or writes one region",
			Parts: []Part{{"files", []string{"(read|write)-c[124]-s[124]"}, nil}},
			Claims: []Claim{
				{"each further client over TCP adds", "120 MB/s (read), 160 MB/s (write)", nil, ""},
				{"each further server over the native transport adds", "about 400 MB/s", nil, ""},
				{"read, 4 clients and 4 servers, native through TCP", "about 3",
					through("read-c4-s4", "shm", "read-c4-s4", "tcp"), bench.Times},
				{"write, the same", "about 3",
					through("write-c4-s4", "shm", "write-c4-s4", "tcp"), bench.Times},
			}, Differs: cluster},
		{Name: "P9", Title: "contiguous MPI-IO: clients over four servers, in memory",
			Parts: []Part{{"files", []string{"(read|write)-c[124]-s4"}, nil}},
			Claims: []Claim{
				{"native through TCP, in memory, 1 client", "about 3",
					through("read-c1-s4", "shm", "read-c1-s4", "tcp"), bench.Times},
				{"native through TCP, on disks", "1.15 to 1.42", nil, ""},
			}, Differs: cluster + "The client library is called directly: MPI-IO passes such " +
				"requests on as they are. The paper's disks are not compared: what bounds them " +
				"here is this host's disk."},
		{Name: "P10", Title: "processor time of the clients",
			Parts: []Part{{"files", []string{"read-c[124]-s4"}, nil}},
			Claims: []Claim{
				{"client busy, TCP", "91 %", bench.Value("read-c1-s4", "tcp", bench.Busy), "%"},
				{"client busy, native", "1.5 %", bench.Value("read-c1-s4", "shm", bench.Busy), "%"},
			}, Differs: cluster + "Over shared memory the server copies into the client's " +
				"memory, as the paper's card did; the client itself copies nothing into memory " +
				"from Alloc. Busy is of one processor."},
	}
}

// pvfsTransfers are those about how data is moved: small, large, in pieces.
func pvfsTransfers() []Experiment {
	return []Experiment{
		{Name: "P11", Title: "small data by protocol: inline, fast (eager) slots, server-driven",
			Parts: []Part{{"net", []string{"small-.*"}, nil}},
			Claims: []Claim{
				{"best at every small size", "fast", nil, ""},
				{"1 KiB over TCP, eager through server-driven", "well below 1",
					through("small-1k", "tcp, eager", "small-1k", "tcp, server-driven"), bench.Times},
				{"1 KiB over TCP, inline through server-driven", "well below 1",
					through("small-1k", "tcp, inline", "small-1k", "tcp, server-driven"), bench.Times},
			}, Differs: oneHost + "Memory is registered in all of them; without a device there " +
				"is no cost of registering."},
		{Name: "P12", Title: "32 MB from and to one server in units of different size",
			Parts: []Part{{"files", []string{"unit-(read|write)-.*"}, nil}},
			Claims: []Claim{
				{"units that are small enough for full overlap", "2 MB and less", nil, ""},
				{"2 MiB units through one of 32 MiB, read", "more than 1",
					through("unit-read-2m", "shm", "unit-read-32m", "shm"), bench.Times},
			}, Differs: cluster + "Two units are under way. A request of 32 MiB is cut by the " +
				"server itself into units of 2 MiB, so that the right end of the figure " +
				"does not fall as in the paper."},
		{Name: "P13",
			Title: "tiles: 2 x 2 displays of 1024 x 768 elements of 24 bytes, with and without lists",
			Parts: []Part{{"files", []string{"tile-(read|write)"}, nil}},
			Claims: []Claim{
				{"requests of one tile", "768, by lists 6", nil, ""},
				{"read by lists, native through TCP", "2.7",
					through("tile-read", "shm, vector", "tile-read", "tcp, vector"), bench.Times},
				{"write by lists, the same", "2.2",
					through("tile-write", "shm, vector", "tile-write", "tcp, vector"), bench.Times},
				{"read row by row, the same", "1.79",
					through("tile-read", "shm, rows", "tile-read", "tcp, rows"), bench.Times},
				{"read, vector through row by row, native", "more than 1",
					through("tile-read", "shm, vector", "tile-read", "shm, rows"), bench.Times},
			}, Differs: cluster + "A tile is one vector and one request to each of the " +
				"servers, through package client/array."},
		{Name: "P14",
			Title: "tiles that lie apart in memory, too, with and without allocation hints",
			Parts: []Part{{"files", []string{"apart-(read|write)"}, nil}},
			Claims: []Claim{
				{"read, with hints through without", "1.85",
					through("apart-read", "shm, hint", "apart-read", "shm, no hint"), bench.Times},
				{"write, the same", "1.71",
					through("apart-write", "shm, hint", "apart-write", "shm, no hint"), bench.Times},
			}, Differs: cluster + "Hints save registrations, of which there are none without " +
				"an RDMA device: here they only say that the rows lie in one allocation. Tiles " +
				"have 512 x 384 elements of 64 bytes, a quarter of the paper's, for the memory of one host."},
	}
}
