package bench

import "fmt"

// IodFigureCases are the names of the cases that the figures of bench iod are made of.
func IodFigureCases() []string {
	return []string{"cached-read-1m", "cached-write-1m", "cached-read-4k-d32", "durable-write-4k-d16",
		"cold-read-1m", "members-(net|large)-[248]-d[14]"}
}

// IodFigures are all promises that the rows have something about.
func IodFigures(rows []Row) []Figure {
	f := &figures{rows: rows}
	for _, p := range []string{tcpProvider, shmProvider} {
		f.iodCached(p)
	}
	for _, p := range []string{tcpProvider, shmProvider} {
		const rate = "cached-read-4k-d32"
		f.ratio(p+": cached 4 KiB reads, depth 32, against rate-4k-d32", rate,
			p+", unifier, same data", 0.70, true)
		f.tell(p+": the same without CRC", rate, p+", unifier, same data, no CRC")
		f.ratio(p+": the same at random places of 64 MiB, against a network that walks as far", rate,
			p+", unifier", 0.70, true)
		f.tell(p+": the same without CRC", rate, p+", unifier, no CRC")
	}
	for _, p := range []string{tcpProvider, shmProvider} {
		f.iodDirect(p)
	}
	for _, p := range []string{tcpProvider, shmProvider} {
		f.ratio(p+": durable 4 KiB writes, 16 outstanding, against the store", "durable-write-4k-d16", p,
			0.80, true)
	}
	for _, p := range []string{tcpProvider, shmProvider} {
		f.iodCosts(p)
	}
	return f.all
}

// iodCached are cached reads of 1 MiB beside the network and beside other servers.
func (f *figures) iodCached(p string) {
	const read = "cached-read-1m"
	f.ratio(p+": cached 1 MiB reads, depth 4, against bulk-1m", read, p+", unifier, same data", 0.90,
		true)
	f.tell(p+": the same without CRC", read, p+", unifier, same data, no CRC")
	f.ratio(p+": the same within 64 MiB, against a network that walks as far", read, p+", unifier",
		0.90, true)
	f.tell(p+": the same without CRC", read, p+", unifier, no CRC")
	for _, other := range []struct {
		kind  string
		limit float64
	}{{IodNormal, 1.5}, {IodMmap, 1.2}, {IodKept, 0}} {
		for _, way := range []string{", unifier", ", unifier, no CRC"} {
			f.better(p, read, way, other.kind, other.limit)
		}
	}
}

// better holds ours against another server, both with checksums or both without, in bandwidth and
// in bytes per processor second of both processes: one of them has to be that much more. A limit of
// 0 promises nothing.
func (f *figures) better(p, name, way, kind string, limit float64) {
	sums := way[len(", unifier"):]
	ours, theirs := f.row(name, p+way), f.row(name, p+", "+kind+sums)
	if ours == nil || theirs == nil || theirs.Value == 0 {
		return
	}
	speed := ours.Value / theirs.Value
	best, text := speed, fmt.Sprintf("bandwidth %.2f x", speed)
	mine, other := processor(ours), processor(theirs)
	if mine > 0 && other > 0 {
		best = max(best, other/mine)
		text += fmt.Sprintf(", per processor second %.2f x", other/mine)
	}
	about := fmt.Sprintf("%s: cached 1 MiB reads%s, against %s (%s)", p, sums, kind, text)
	if limit == 0 {
		f.all = append(f.all, Figure{Name: about, Measured: best, Unit: "x", Told: true, Met: true})
		return
	}
	f.add(about, best, "x", limit, true)
}

// processor is what both processes spend on a GiB.
func processor(r *Row) float64 {
	if r.LocalCPU == nil || r.RemoteCPU == nil {
		return 0
	}
	return *r.LocalCPU + *r.RemoteCPU
}

// iodDirect are streams past the cache, and one large request from throttled members.
func (f *figures) iodDirect(p string) {
	const cold = "cold-read-1m"
	store, net := f.row(cold, StoreAlone), f.row(cold, netCeiling(p))
	for _, way := range []string{", direct", ", direct, no CRC"} {
		ours := f.row(cold, p+way)
		if store == nil || net == nil || ours == nil {
			continue
		}
		slower := min(store.Value, net.Value)
		name := p + ": direct 1 MiB reads, depth 4" + way[len(", direct"):]
		f.add(name+", against the slower of store and network", ours.Value/slower, "x", 0.90, true)
	}
	f.iodMembers(p, paceNet, "")
	f.iodMembers(p, paceLarge, " and 8 MiB")
}

// iodMembers are large requests from throttled members.
func (f *figures) iodMembers(p, pace, what string) {
	for _, members := range []int{2, 4, 8} {
		at := func(depth int, way string) *Row {
			return f.row(fmt.Sprintf("members-%s-%d-d%d", pace, members, depth), p+", "+way)
		}
		one, many, plain := at(1, "multiple"), at(4, "plain"), at(1, "plain")
		if one == nil || many == nil || plain == nil {
			continue
		}
		name := fmt.Sprintf("%s: %d throttled members%s, depth 1, multiple streams, against ", p,
			members, what)
		f.add(name+"depth 4 plain", one.Value/many.Value, "x", 0.85, true)
		f.add(name+"depth 1 plain", one.Value/plain.Value, "x", 1.3, true)
	}
}

// iodCosts are what is to be nothing, or is printed.
func (f *figures) iodCosts(p string) {
	for _, one := range []struct{ name, who, text string }{
		{"cached-read-1m", p + ", unifier", "cached 1 MiB reads"},
		{"cached-read-4k-d32", p + ", unifier", "cached 4 KiB reads"},
		{"cached-write-1m", p + ", unifier", "cached 1 MiB writes"},
		{"cold-read-1m", p + ", direct", "direct 1 MiB reads"},
		{"durable-write-4k-d16", p, "durable 4 KiB writes"},
	} {
		r := f.row(one.name, one.who)
		if r == nil {
			continue
		}
		if r.Allocs != nil {
			f.add(p+": "+one.text+", allocations per request", *r.Allocs, "", iodAllocsNone, false)
		}
		if r.Copies != nil {
			text := p + ": " + one.text + ", copies per byte"
			if r.ProviderCopies != nil {
				text += fmt.Sprintf(" (the provider makes %.0f more)", *r.ProviderCopies)
			}
			f.all = append(f.all, Figure{Name: text, Measured: *r.Copies, Told: true, Met: true})
		}
	}
}

// iodAllocsNone is what goroutines of the bench and timers of the runtime may allocate while
// requests do not: one in twenty requests at most.
const iodAllocsNone = 0.05

// tell adds a ratio that nothing is promised about.
func (f *figures) tell(name, of, provider string) {
	if r := f.row(of, provider); r != nil && r.Ratio > 0 {
		f.all = append(f.all, Figure{Name: name, Measured: r.Ratio, Unit: "x", Told: true, Met: true})
	}
}
