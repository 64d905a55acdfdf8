package paper

import "github.com/sluice-storage/sluice/bench"

const messageSize = "size of a message"

// pieces is a message in 16 pieces, or in one.
func pieces(size, by string) Cell { return value("pieces-"+size, by, "") }

const pieceSizes = "4k 64k 256k 1m 4m"

func exio() []Experiment {
	all := []Part{{Bench: "net", Cases: []string{"pieces-.*"}, Providers: []string{"tcp", "shm"}}}
	return []Experiment{gathered(all), networks(all), bothSides(all)}
}

func gathered(all []Part) Experiment {
	ratio := func(size, a, b string) bench.Finder {
		return through(pieces(size, "shm, "+a), pieces(size, "shm, "+b))
	}
	return Experiment{Name: "X5", Title: "16 pieces by size: gathered, packed, and contiguous",
		Parts: all,
		Graphs: []Graph{{Title: "memory to memory of two processes", X: messageSize, Unit: mbs,
			Ticks: sizes(pieceSizes), Lines: labels("shm, contiguous=contiguous", "shm, gather=gathered",
				"shm, pack=packed"), At: pieces}},
		Says: "Gathering is up to three times as fast as packing, and nearly as fast as contiguous " +
			"memory.",
		Claims: []Claim{
			{What: "gathered through packed", Paper: "up to 3", Holds: over(1),
				Here: []Here{{"1 MiB", ratio("1m", "gather", "pack"), bench.Times},
					{"4 MiB", ratio("4m", "gather", "pack"), bench.Times}}},
			shape("gathered through contiguous, 4 MiB", "more than 0.95",
				ratio("4m", "gather", "contiguous"), over(0.95)),
			shape("gathered through contiguous, 64 KiB", "at least 0.70",
				ratio("64k", "gather", "contiguous"), over(0.70)),
			told("packed, peak", "1500 MB/s", mbs, most(pieces("256k", "shm, pack"),
				pieces("1m", "shm, pack"), pieces("4m", "shm, pack"))),
		}, Differs: oneHost + "Pieces lie as far apart as they are long, not 1 MB."}
}

func networks(all []Part) Experiment {
	peak := func(p string) bench.Finder {
		return most(pieces("64k", p+", gather"), pieces("256k", p+", gather"),
			pieces("1m", p+", gather"), pieces("4m", p+", gather"))
	}
	ratio := func(size string) bench.Finder {
		return through(pieces(size, "shm, gather"), pieces(size, "tcp, gather"))
	}
	return Experiment{Name: "X6", Title: "16 pieces over different networks", Parts: all, Same: "X5",
		Graphs: []Graph{{Title: "gathered", X: messageSize, Unit: mbs, Ticks: sizes(pieceSizes),
			Lines: labels("shm, gather=one-sided (shm)", "tcp, gather=tcp"), At: pieces}},
		Says: "RDMA has two and a half times the peak of TCP, and loses to it for small and middle " +
			"messages.",
		Claims: []Claim{
			{What: "peak", Paper: "2906 MB/s (RDMA), 1181 (10GigE), 971 (IPoIB)",
				Here: []Here{{"shm", peak("shm"), mbs}, {"tcp", peak("tcp"), mbs}}},
			shape("4 MiB: one-sided through TCP", "2.5", ratio("4m"), over(1)),
			shape("4 KiB: one-sided through TCP", "less than 1", ratio("4k"), under(1)),
		}, Differs: oneHost + "What RDMA cost small messages there was work on the card and its " +
			"registrations; shared memory has neither."}
}

func bothSides(all []Part) Experiment {
	busy := func(by string, side func(*bench.Cost) *float64) func(size string) Cell {
		return func(size string) Cell {
			return func(rows bench.Rows) *bench.Mark {
				perGiB, ok := bench.CostOf("pieces-"+size, by, side)(rows)
				moved := pieces(size, by)(rows)
				if !ok || moved == nil {
					return nil
				}
				v := 100 * perGiB * moved.Value * 1e6 / (1 << 30)
				return &bench.Mark{Value: v, Low: v, High: v}
			}
		}
	}
	sender := func(c *bench.Cost) *float64 { return c.LocalCPU }
	receiver := func(c *bench.Cost) *float64 { return c.RemoteCPU }
	lines := map[string]func(string) Cell{
		"tcp sender": busy("tcp, gather", sender), "tcp receiver": busy("tcp, gather", receiver),
		"shm sender": busy("shm, gather", sender), "shm receiver": busy("shm, gather", receiver)}
	here := func(line string) []Here { return []Here{{"4 MiB", of(lines[line]("4m")), "%"}} }
	return Experiment{Name: "X7", Title: "processor time of sender and receiver",
		Parts: all, Same: "X5",
		Graphs: []Graph{{Title: "busy while 16 pieces are gathered and sent", X: messageSize,
			Unit: "% of one processor", Ticks: sizes(pieceSizes),
			Lines: labels("tcp sender", "tcp receiver", "shm sender", "shm receiver"),
			At:    func(tick, line string) Cell { return lines[line](tick) }}},
		Says: "Over TCP the receiver is saturated and the sender half busy; over RDMA both do little " +
			"for more bandwidth.",
		Claims: []Claim{
			{What: "receiver over TCP", Paper: "saturated (100 %)", Here: here("tcp receiver")},
			{What: "sender over TCP", Paper: "40 % (IPoIB), 60 % (10GigE)", Here: here("tcp sender")},
			{What: "receiver, one-sided", Paper: "little", Here: here("shm receiver")},
			{What: "sender, one-sided", Paper: "little", Here: here("shm sender")},
			shape("processor time of a byte, both sides, one-sided through TCP", "well below 1",
				bench.Both(sides("shm, gather"), sides("tcp, gather"), bench.Through), under(0.7)),
		}, Differs: oneHost + "Over shared memory one side copies, where the paper's card did: it is " +
			"as busy as it is quick."}
}

// sides is the processor time of both for 4 MiB.
func sides(by string) bench.Finder {
	plus := func(a, b float64) float64 { return a + b }
	return bench.Both(local("pieces-4m", by), remote("pieces-4m", by), plus)
}

func local(name, provider string) bench.Finder {
	return bench.CostOf(name, provider, func(c *bench.Cost) *float64 { return c.LocalCPU })
}

func remote(name, provider string) bench.Finder {
	return bench.CostOf(name, provider, func(c *bench.Cost) *float64 { return c.RemoteCPU })
}
