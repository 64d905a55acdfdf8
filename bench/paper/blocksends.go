package paper

import (
	"fmt"

	"github.com/sluice-storage/sluice/bench"
)

const throttled = "Members are throttled to the same rate, as slow as the network, which is " +
	"measured first: disks of this host would be all the same one. "

// blockSends is how disks and network overlap within a request.
func blockSends() []Experiment {
	return []Experiment{synchronized(), arrivals(), timeAtServer(),
		{Name: "G5.4", Also: []string{"G5.5", "G5.6", "G5.7", "G5.8", "G5.9", "G5.10"},
			Title: "OCFS2 on the block device: IOzone, web servers, MPI-Tile-IO, on 1 and 4 nodes",
			Says: "Without the client's cache the path past memory has up to 66 % more aggregate " +
				"bandwidth; with it, it depends on the server's scheduling of requests.",
			CannotBe: "OCFS2 needs several kernels with its modules. They are in the virtual " +
				"machines of docs/ops/vmlab.md, see docs/ops/ocfs2.md; emulated hosts " +
				"give no figures to compare."}}
}

func synchronized() Experiment {
	at := func(members, depth, by string) Cell {
		return value(fmt.Sprintf("members-net-%s-d%s", members, depth), "shm, "+by, "")
	}
	ways := labels("1 1=1 disk, 1 request", "1 4=1 disk, 4", "4 1=4 disks, 1 request",
		"4 4=4 disks, 4")
	return Experiment{Name: "G4.3",
		Title: "synchronized sends: one large request whose chunks leave as the disks deliver them",
		Parts: []Part{{Bench: "iod", Cases: []string{"members-net-(1|4)-d(1|4)"},
			Ways: []string{"shm, .*"}}},
		Graphs: []Graph{{Title: "direct reads of 1 MiB", X: "", Unit: mbs, Bars: true, Ticks: ways,
			Lines: labels("plain=plain sends", "single=synchronized, one stream",
				"multiple=synchronized, a stream for each disk"),
			At: func(tick, line string) Cell { return at(tick[:1], tick[2:], line) }}},
		Says: "With one request under way a synchronized send overlaps disk and network; on a RAID set " +
			"only if it knows the disks' streams.",
		Claims: []Claim{
			shape("1 disk, 1 request: one stream through plain", "1.77 (a fast device)",
				through(at("1", "1", "single"), at("1", "1", "plain")), over(1.1)),
			shape("4 disks, 1 request: one stream through plain", "1.07",
				through(at("4", "1", "single"), at("4", "1", "plain")), under(1.3)),
			shape("4 disks, 1 request: a stream each, through one stream", "more than 1",
				through(at("4", "1", "multiple"), at("4", "1", "single")), over(1.1)),
			shape("4 disks: a stream each with 1 request, through 4 plain requests", "1.40",
				through(at("4", "1", "multiple"), at("4", "4", "plain")), over(1)),
		}, Differs: server + throttled}
}

func arrivals() Experiment {
	var ticks []Label
	for i := range 16 {
		ticks = append(ticks, Label{Key: fmt.Sprint(i), Name: fmt.Sprint(64 * i)})
	}
	at := func(chunk, by string) Cell { return value("arrivals-1m", "shm, "+by, bench.Arrival+chunk) }
	first := func(by string) bench.Finder {
		return through(at("0", by), value("arrivals-1m", "shm, "+by, ""))
	}
	return Experiment{Name: "G4.4", Title: "when each chunk of a request arrives in memory",
		Parts: []Part{{Bench: "iod", Cases: []string{"arrivals-1m"}, Ways: []string{"shm, .*"}}},
		Graphs: []Graph{{Title: "a direct read of 1 MiB from 4 disks, at the client", Unit: us,
			X: "chunk, KiB from the beginning", Ticks: ticks, Lines: labels("plain=plain sends",
				"single=synchronized, one stream", "multiple=synchronized, a stream for each disk"),
			At: at}},
		Says: "The disks of a RAID set deliver their parts of a request at the same time, so that one " +
			"stream through it overlaps only the first part.",
		Claims: []Claim{
			{What: "the first chunk is there, through the whole time: plain", Paper: "about 1",
				Holds: over(0.5), Here: []Here{{Of: first("plain"), Unit: bench.Times}}},
			{What: "the same: a stream for each disk", Paper: "much less than 1", Holds: under(0.6),
				Here: []Here{{Of: first("multiple"), Unit: bench.Times}}},
			shape("the last chunk: a stream each through plain", "less than 1",
				through(at("15", "multiple"), at("15", "plain")), under(1)),
		}, Differs: server + throttled + "The paper watches what the disks write into the card; here " +
			"the client watches its memory, in which each chunk has a marker at its end that the data " +
			"replaces. 16 chunks of 64 KiB, medians."}
}

func timeAtServer() Experiment {
	at := func(size, way, state string) Cell {
		return value("states-read-"+size, "shm, "+way, bench.StateTime+state)
	}
	var graphs []Graph
	for _, size := range []string{"4k", "1m"} {
		graphs = append(graphs, Graph{Title: "a read of " + sizes(size)[0].Name, X: "path", Unit: us,
			Bars: true, Ticks: labels("cached=in the cache", "cold=through the cache", "direct=past it"),
			Lines: labels("init", "disk=read", "send_init=send-init", "send", "fin"),
			At:    func(tick, line string) Cell { return at(size, tick, line) }})
	}
	plus := func(a, b float64) float64 { return a + b }
	sum := func(size, way string, states ...string) bench.Finder {
		all := of(at(size, way, states[0]))
		for _, s := range states[1:] {
			all = bench.Both(all, of(at(size, way, s)), plus)
		}
		return all
	}
	small := func(way string) Here {
		return Here{way, bench.Both(sum("1m", way, "init", "send_init", "fin"),
			sum("1m", way, "disk", "send"), bench.Through), bench.Times}
	}
	return Experiment{Name: "G4.5", Title: "where a request spends its time at the server",
		Parts:  []Part{{Bench: "iod", Cases: []string{"states-read-(4k|1m)"}, Ways: []string{"shm, .*"}}},
		Graphs: graphs,
		Says:   "All but reading and sending is negligible.",
		Claims: []Claim{
			{What: "1 MiB: init, send-init and fin through read and send", Paper: "negligible",
				Holds: under(0.15), Here: []Here{small("cold"), small("direct")}},
			{What: "1 MiB past the cache: read, send", Paper: "",
				Here: []Here{{"read", of(at("1m", "direct", "disk")), us},
					{"send", of(at("1m", "direct", "send")), us}}},
			absent("send that is not overlapped, with synchronized sends", "negligible",
				"times are of plain sends: see G4.3 and G4.4"),
		}, Differs: server + "One request at a time."}
}
