package paper

import (
	"fmt"
	"strings"

	"github.com/sluice-storage/sluice/bench"
)

const cluster = "Four I/O servers in memory, the metadata service and all clients share one " +
	"host and its processors, so that more clients or servers add work and no hardware. TCP " +
	"over loopback stands for the paper's TCP over InfiniBand (IBNice), shared memory for " +
	"its native transport. "

const clientsAxis = "clients"

// region is what clients of so many servers read or write by one provider.
func region(what string, clients, servers, provider string) Cell {
	return value(fmt.Sprintf("%s-c%s-s%s", what, clients, servers), provider, "")
}

func pvfs() []Experiment {
	return []Experiment{rawNetwork(), localStorage(), regionsOf(), contiguous(), clientTime()}
}

func rawNetwork() Experiment {
	return Experiment{Name: "PT2", Also: []string{"P5"},
		Title: "the raw network: latency, one-sided writes and reads by size",
		Parts: []Part{{Bench: "fabric", Cases: []string{"rtt-8", "write-.*", "read-.*"},
			Ways: network()}},
		Graphs: []Graph{{Title: "bandwidth of one-sided operations, 16 under way",
			X: "size of an operation", Unit: mbs, Ticks: sizes("4k 64k 1m 4m"),
			Lines: labels("write tcp=write", "read tcp=read", "write plain Go TCP=plain Go TCP",
				"?write verbs=write, verbs", "?read verbs=read, verbs"),
			At: func(tick, line string) Cell {
				op, by, _ := strings.Cut(line, " ")
				return value(op+"-"+tick, by, "")
			}}},
		Says: "RDMA has four times the bandwidth of TCP over the same network and a quarter of its " +
			"latency; reads of small pieces are far slower than writes.",
		Claims: []Claim{
			told("4 bytes one way, TCP", "40.1 us", us,
				of(scaled(value("rtt-8", "plain Go TCP", ""), 0.5))),
			told("send and receive", "9.2 us", us, of(scaled(value("rtt-8", "tcp", ""), 0.5))),
			told("bandwidth, TCP", "185 MB/s", mbs, of(value("write-1m", "plain Go TCP", ""))),
			told("write", "827 MB/s (6.0 us)", mbs, of(value("write-1m", "tcp", ""))),
			told("read", "816 MB/s (12.4 us)", mbs, of(value("read-1m", "tcp", ""))),
			shape("1 MiB, read through write", "0.99", through(value("read-1m", "tcp", ""),
				value("write-1m", "tcp", "")), over(0.8)),
			shape("4 KiB, read through write", "well below 1", through(value("read-4k", "tcp", ""),
				value("write-4k", "tcp", "")), under(0.9)),
			absent("write through TCP", "4.5", "the network here is TCP itself"),
		}, Differs: oneHost}
}

// localStorage is a table of both papers that use these machines.
func localStorage() Experiment {
	return Experiment{Name: "PT3", Also: []string{"UT1"},
		Title: "this host's own storage: files on its disk and in memory, and a copy",
		Parts: []Part{{Bench: LocalBench, Cases: []string{"write", "read", "copy"}}},
		Graphs: []Graph{{Title: "files of 128 MiB, 1 MiB each time", X: "operation", Unit: mbs,
			Bars: true, Ticks: labels("write", "read"), Lines: labels("disk", "memory"),
			At: func(tick, line string) Cell { return value(tick, line, "") }}},
		Says: "The disk is an order of magnitude slower than memory, and than the network.",
		Claims: []Claim{
			told("write, disk (ext3)", "25 MB/s", mbs, of(value("write", "disk", ""))),
			told("read, disk", "20 MB/s", mbs, of(value("read", "disk", ""))),
			told("write, memory (ramfs; cached ext3)", "556 MB/s; 440", mbs,
				of(value("write", "memory", ""))),
			told("read, memory", "1057 MB/s; 560", mbs, of(value("read", "memory", ""))),
			told("a copy in memory", "610 MB/s", mbs, of(value("copy", "memory", ""))),
			shape("write, memory through disk", "22", through(value("write", "memory", ""),
				value("write", "disk", "")), over(2)),
			shape("read, memory through disk", "53", through(value("read", "memory", ""),
				value("read", "disk", "")), over(2)),
		}, Differs: "The disk is read and written past the kernel's cache, and each write is on it. " +
			"It is a virtual one of this host, not an IDE drive."}
}

func regionsOf() Experiment {
	servers := labels("1=1 server", "2=2 servers", "4=4 servers")
	var graphs []Graph
	for _, g := range []struct{ title, what, provider string }{
		{"P7: read, TCP", "read", "tcp"}, {"P7: write, TCP", "write", "tcp"},
		{"P8: read, native", "read", "shm"}, {"P8: write, native", "write", "shm"}} {
		graphs = append(graphs, Graph{Title: g.title, X: clientsAxis, Unit: mbs,
			Ticks: labels("1", "2", "4"), Lines: servers,
			At: func(tick, line string) Cell { return region(g.what, tick, line, g.provider) }})
	}
	perClient := func(what string) bench.Finder {
		return of(scaled(minus(region(what, "4", "4", "tcp"), region(what, "1", "4", "tcp")), 1.0/3))
	}
	perServer := func(what string) bench.Finder {
		return of(scaled(minus(region(what, "4", "4", "shm"), region(what, "4", "1", "shm")), 1.0/3))
	}
	all := func(what string) bench.Finder {
		return through(region(what, "4", "4", "shm"), region(what, "4", "4", "tcp"))
	}
	return Experiment{Name: "P7", Also: []string{"P8"},
		Title:  "clients x servers: each client reads or writes one region",
		Parts:  []Part{{Bench: OwnBench, Cases: []string{"(read|write)-c[124]-s[124]"}}},
		Graphs: graphs,
		Says: "Bandwidth grows with each client and each server, and over the native transport it " +
			"is three times that of TCP.",
		Claims: []Claim{
			{What: "each further client over TCP adds", Paper: "120 MB/s (read), 160 MB/s (write)",
				Holds: over(0), Here: []Here{{"read", perClient("read"), mbs},
					{"write", perClient("write"), mbs}}},
			{What: "each further server over the native transport adds",
				Paper: "about 400 MB/s (read), slightly less (write)", Holds: over(0),
				Here: []Here{{"read", perServer("read"), mbs}, {"write", perServer("write"), mbs}}},
			{What: "4 clients and 4 servers, native through TCP", Paper: "about 3",
				Holds: over(1.5), Here: []Here{{"read", all("read"), bench.Times},
					{"write", all("write"), bench.Times}}},
		}, Differs: cluster + "A region is 2 MiB for each server."}
}

func contiguous() Experiment {
	var graphs []Graph
	for _, what := range []string{"read", "write"} {
		graphs = append(graphs, Graph{Title: what + ", in memory, 4 servers", X: clientsAxis,
			Unit: mbs, Ticks: labels("1", "2", "4"), Lines: labels("shm=native (shm)", "tcp=TCP"),
			At: func(tick, line string) Cell { return region(what, tick, "4", line) }})
	}
	ratio := func(what, clients string) Here {
		return Here{what, through(region(what, clients, "4", "shm"), region(what, clients, "4", "tcp")),
			bench.Times}
	}
	return Experiment{Name: "P9", Title: "contiguous MPI-IO: clients over four servers, in memory",
		Parts: []Part{{Bench: OwnBench, Cases: []string{"(read|write)-c[124]-s4"}}}, Same: "P7",
		Graphs: graphs,
		Says: "MPI-IO over the native transport has about three times the bandwidth of TCP in " +
			"memory, and on disks still 15 to 42 % more.",
		Claims: []Claim{
			{What: "native through TCP, in memory, 1 client", Paper: "about 3", Holds: over(1.5),
				Here: []Here{ratio("read", "1"), ratio("write", "1")}},
			{What: "the same, 4 clients", Paper: "about 3", Holds: over(1.5),
				Here: []Here{ratio("read", "4"), ratio("write", "4")}},
			absent("native through TCP, on disks", "1.15 to 1.42; 95 MB/s by 4 clients",
				"four servers here share one disk"),
		}, Differs: cluster + "The client library is called directly, and MPI-IO passes such " +
			"requests on as they are: docs/figures/parallel.md has MPI-IO itself."}
}

func clientTime() Experiment {
	busy := func(clients, provider string) Cell {
		by := map[string]float64{"1": 1, "2": 0.5, "4": 0.25}
		return scaled(value("read-c"+clients+"-s4", provider, bench.Busy), by[clients])
	}
	return Experiment{Name: "P10", Title: "processor time of the clients",
		Parts: []Part{{Bench: OwnBench, Cases: []string{"read-c[124]-s4"}}}, Same: "P7",
		Graphs: []Graph{{Title: "a client while it reads from 4 servers", X: clientsAxis,
			Unit: "% of one processor", Ticks: labels("1", "2", "4"),
			Lines: labels("tcp=TCP", "shm=native (shm)"), At: busy}},
		Says: "A client over TCP is busy with copies, the less the more clients wait for the same " +
			"servers; over the native transport it does next to nothing.",
		Claims: []Claim{
			told("one client busy, TCP", "91 %", "%", of(busy("1", "tcp"))),
			told("one client busy, native", "1.5 %", "%", of(busy("1", "shm"))),
			shape("4 clients: each, TCP, through one alone", "less than 1",
				through(busy("4", "tcp"), busy("1", "tcp")), under(1)),
			shape("processor time of a byte, native through TCP", "0.006",
				through(perByte("read-c1-s4", "shm"), perByte("read-c1-s4", "tcp")), under(0.5)),
		}, Differs: cluster + "Over shared memory the server copies into the client's memory, as " +
			"the paper's card did. All clients are one process, whose time is shared out among " +
			"them; where processors are short, who waits is not busy."}
}

// perByte is processor time through bandwidth.
func perByte(name, provider string) Cell {
	return func(rows bench.Rows) *bench.Mark {
		v, ok := local(name, provider)(rows)
		if !ok {
			return nil
		}
		return &bench.Mark{Value: v, Low: v, High: v}
	}
}
