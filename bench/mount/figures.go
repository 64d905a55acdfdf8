package mount

import "github.com/sluice-storage/sluice/bench"

// Promises are what is asked of the mount.
func Promises() []bench.Promise {
	most := func(text, name string, limit float64, unit string) bench.Promise {
		return bench.Promise{Name: text, Bound: bench.Most, Limit: limit, Unit: unit,
			Of: bench.Value(name, Sluice, "")}
	}
	least := func(text, name string, limit float64) bench.Promise {
		return bench.Promise{Name: text, Bound: bench.Least, Limit: limit, Unit: "op/s",
			Of: bench.Value(name, Sluice, "")}
	}
	ceiling := func(text, name string) bench.Promise {
		return bench.Promise{Name: text + ", of the ceiling", Bound: bench.Least, Limit: 0.8,
			Unit: bench.Times, Of: bench.Ratio(name, Sluice)}
	}
	return []bench.Promise{
		most("cp -r of Go's source", treeCopy, 4, "s"),
		{Name: "the same, of the best peer's time", Bound: bench.Most, Limit: 0.5, Unit: bench.Times,
			Of: ofPeer(treeCopy)},
		most("tar of it back, cold", treeTar, 2.5, "s"),
		most("find in it, cold", treeFind, 0.3, "s"),
		most("rm -r of it", treeRemove, 1.5, "s"),
		least("4 KiB files created, written and closed by one process", fileCreate, 5000),
		{Name: "the same: processor time of all processes, for each", Bound: bench.Most, Limit: 250,
			Unit: "us", Of: eachFile(fileCreate)},
		least("unlink of them", fileUnlink, 10000),
		{Name: "git clone, of the local disk's time", Bound: bench.Most, Limit: 3, Unit: bench.Times,
			Of: bench.Both(bench.Value(gitClone, Sluice, ""), bench.Value(gitClone, Local, ""),
				bench.Through)},
		ceiling("1 MiB sequential reads, cold", seqRead),
		ceiling("1 MiB sequential writes with fsync", seqWrite),
		ceiling("four jobs reading, cold", jobsRead),
		ceiling("four jobs writing with fsync", jobsWrite),
		{Name: "4 KiB random O_DIRECT reads of 16 jobs, of 50,000/s or of 60 % of the ceiling",
			Bound: bench.Least, Limit: 1, Unit: bench.Times, Of: randomOf},
		peakOf("a million open-close cycles: memory of the mount at the end", longOpen),
		peakOf("a million-entry directory: memory of the mount at the end", longList),
		peakOf("a long copy: memory of the mount at the end", longCopy),
	}
}

// peakOf is printed: the last point of a long run.
func peakOf(text, name string) bench.Promise {
	return bench.Promise{Name: text, Bound: bench.Told, Unit: "MiB",
		Of: func(rows bench.Rows) (v float64, ok bool) {
			for i := range rows {
				if r := &rows[i]; r.Case == name && r.Provider == longMount {
					v, ok = r.Value, true
				}
			}
			return v, ok
		}}
}

// ofPeer is a row through the best peer's.
func ofPeer(name string) bench.Finder {
	return func(rows bench.Rows) (float64, bool) {
		r := rows.Find(name, Sluice, "")
		if r == nil || r.PeerRatio == 0 {
			return 0, false
		}
		return r.PeerRatio, true
	}
}

// eachFile is the processor time of a file in microseconds: that of the system and of the program.
func eachFile(name string) bench.Finder {
	return bench.Both(bench.Value(name, Sluice, bench.SystemCPU),
		bench.Value(name, Sluice, bench.ReaderCPU),
		func(system, reader float64) float64 { return (system + reader) * 1e6 / 1000 })
}

// randomOf is the better of two ways to keep the promise: 1 and more keeps it.
func randomOf(rows bench.Rows) (float64, bool) {
	r := rows.Find(randomRead, Sluice, "")
	if r == nil {
		return 0, false
	}
	return max(r.Value/50000, r.Ratio/0.6), true
}
