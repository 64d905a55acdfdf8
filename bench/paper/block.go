package paper

import (
	"fmt"

	"github.com/sluice-storage/sluice/bench"
)

const disk = "A file on this host's disk behind sluice nbd, read by fio over a unix socket. " +
	"There is no card with memory of its own: the direct path is O_DIRECT into memory and from " +
	"there to the client, which the paper calls gmblock-ram; cached goes through the kernel's " +
	"cache, too. "

// blocks is reads or writes of a file on the disk.
func blocks(what, size, depth, by string) Cell {
	return megabytes(fmt.Sprintf("disk-%s-%s-d%s", what, size, depth), by)
}

const blockSizes = "16k 64k 256k 1m"

// blockGraphs are one for each number of requests that are under way.
func blockGraphs(what string, servers ...string) (all []Graph) {
	for _, depth := range []string{"1", "4"} {
		all = append(all, Graph{Title: what + ", under way: " + depth, X: requestSize, Unit: mbs,
			Ticks: sizes(blockSizes), Lines: labels(servers...),
			At: func(tick, line string) Cell { return blocks(what, tick, depth, line) }})
	}
	return all
}

func blockPart(what string, servers ...string) []Part {
	return []Part{{Bench: "nbd", Cases: []string{"disk-" + what + "-(16k|64k|256k|1m)-d(1|4)"},
		Providers: servers}}
}

// block is remote blocks; blockSends, in blocksends.go, what synchronized sends do for them.
func block() []Experiment {
	return []Experiment{localReads(), remoteReads(), interference(), remoteWrites()}
}

func localReads() Experiment {
	at := func(size, by string) Cell { return value("direct-"+size, by, "") }
	return Experiment{Name: "G3.7", Title: "local reads of the disk by size, past the kernel's cache",
		Parts: []Part{{Bench: LocalBench, Cases: []string{"direct-.*"}}},
		Graphs: []Graph{{Title: "one request at a time", X: requestSize, Unit: mbs,
			Ticks: sizes("16k 64k 256k 512k 1m"), Lines: labels("disk"), At: at}},
		Says: "A RAID set delivers its best only to large requests, from 128 to 512 KiB on, which " +
			"bounds what remote clients can get.",
		Claims: []Claim{
			told("512 KiB", "335 MB/s into the card, 217 into memory", mbs, of(at("512k", "disk"))),
			shape("512 KiB through 16 KiB", "more than 1", through(at("512k", "disk"),
				at("16k", "disk")), over(1)),
		}, Differs: "A file on this host's virtual disk, not a RAID set of 8 disks."}
}

func remoteReads() Experiment {
	deeper := func(by string) Here {
		return Here{by, through(blocks("read", "256k", "4", by), blocks("read", "256k", "1", by)),
			bench.Times}
	}
	return Experiment{Name: "G3.8", Also: []string{"G3.9"},
		Title:  "remote reads by size and requests under way, by path",
		Parts:  blockPart("read", "direct", "cached", "nbd-server"),
		Graphs: blockGraphs("read", "direct", "cached", "nbd-server"),
		Says: "The path past memory has up to twice the bandwidth of that through memory and 90 % of " +
			"the local disk's, once several requests are under way; GNBD over TCP is slowest.",
		Claims: []Claim{
			told("the server that everybody has (GNBD)", "at most 68 MB/s", mbs,
				of(blocks("read", "256k", "4", "nbd-server"))),
			told("through memory, 256 KiB, 4 under way", "about 100 MB/s (server B), 198 (server A)", mbs,
				of(blocks("read", "256k", "4", "cached"))),
			{What: "past it, 256 KiB", Paper: "186 MB/s (1 under way), 220 (more)",
				Here: []Here{{"1", of(blocks("read", "256k", "1", "direct")), mbs},
					{"4", of(blocks("read", "256k", "4", "direct")), mbs}}},
			{What: "4 under way through 1, 256 KiB", Paper: "1.18", Holds: over(1),
				Here: []Here{deeper("direct")}},
			shape("past through through memory, 256 KiB, 4 under way", "2.2 (B), 1.2 (A)",
				through(blocks("read", "256k", "4", "direct"), blocks("read", "256k", "4", "cached")), over(1)),
		}, Differs: disk + "The cached path finds the file in the kernel's memory, as the paper's " +
			"through memory did not."}
}

func interference() Experiment {
	slow := func(by string) Cell { return value("disk-beside", by, "") }
	lost := func(by string) bench.Finder {
		return func(rows bench.Rows) (float64, bool) {
			v, ok := of(slow(by))(rows)
			return 100 * (v - 1), ok
		}
	}
	return Experiment{Name: "G3.10", Title: "what a local program loses beside a server of blocks",
		Parts: []Part{{Bench: "nbd", Cases: []string{"disk-beside"},
			Providers: []string{"direct", "cached", "nbd-server"}}},
		Graphs: []Graph{{Title: "time of a loop over memory, through its time alone", X: "server",
			Unit: bench.Times, Bars: true, Ticks: labels("direct", "cached", "nbd-server"),
			Lines: labels("slowed=slowed down"),
			At:    func(tick, _ string) Cell { return slow(tick) }}},
		Says: "Through memory the server slows a program down that needs the memory itself; past it " +
			"the program does not notice.",
		Claims: []Claim{
			{What: "the program is slowed by", Paper: "67 % (through memory), about 0 (past it)",
				Here: []Here{{"cached", lost("cached"), "%"}, {"direct", lost("direct"), "%"},
					{"nbd-server", lost("nbd-server"), "%"}}},
			shape("direct through cached, time of the program", "0.6", through(slow("direct"),
				slow("cached")), under(1)),
		}, Differs: disk + "A loop over three arrays stands for bzip2, and every server is asked for " +
			"400 MiB/s, not for as much as it can. Client, server and loop share the processors, " +
			"which the paper's did not: most of what is lost is that."}
}

func remoteWrites() Experiment {
	return Experiment{Name: "G3.11", Title: "remote writes by size and requests under way",
		Parts:  blockPart("write", "direct", "cached", "nbd-server"),
		Graphs: blockGraphs("write", "direct", "cached", "nbd-server"),
		Says: "Writes through memory reach 100 of the disk's 160 MB/s; the card's own memory is read " +
			"so slowly that past it there is no gain.",
		Claims: []Claim{
			told("through memory, 256 KiB, 4 under way", "about 100 MB/s", mbs,
				of(blocks("write", "256k", "4", "cached"))),
			told("past it, 256 KiB, 4 under way", "25 MB/s (card), about 100 (another card's memory)", mbs,
				of(blocks("write", "256k", "4", "direct"))),
			shape("past through through memory, 256 KiB, 4 under way", "at most 1",
				through(blocks("write", "256k", "4", "direct"), blocks("write", "256k", "4", "cached")),
				under(1.1)),
		}, Differs: disk + "Cached writes are in memory when they are answered; direct ones are on the " +
			"disk's own cache."}
}
