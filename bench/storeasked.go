package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Promise is a figure that the project has promised.
type Promise struct {
	Text     string
	Case     string
	Provider string
	Metric   string
	Limit    float64
	AtMost   bool // the limit is the most, not the least
	Ratio    bool // of the ceiling, not the value itself
}

// StorePromises are those of the local store.
func StorePromises() []Promise {
	const ours = "logstore"
	ratio := func(text, name, metric string, least float64) Promise {
		return Promise{text, name, ours, metric, least, false, true}
	}
	most := func(text, name, metric string, limit float64) Promise {
		return Promise{text, name, ours, metric, limit, true, false}
	}
	return []Promise{
		ratio("durable random writes of 4 KiB at depth 16, three wraps of the log",
			"durable-rand-write-d16-4k", Rate, 0.60),
		ratio("durable sequential writes of 1 MiB, depth 1", "durable-seq-write-d1-1m", Bandwidth,
			0.80),
		ratio("durable sequential writes of 1 MiB, depth 4", "durable-seq-write-d4-1m", Bandwidth,
			0.80),
		ratio("random reads of 4 KiB at depth 32", "rand-read-d32-4k", Rate, 0.85),
		ratio("reads of 1 MiB, depth 1", "seq-read-d1-1m", Bandwidth, 0.95),
		ratio("reads of 1 MiB, depth 4", "seq-read-d4-1m", Bandwidth, 0.95),
		most("restart with a full log of the default size", "restart-full-log", Restart, 5),
		most("allocations per durable write of 4 KiB", "durable-rand-write-d16-4k", Allocations,
			allocsNone),
		most("allocations per read of 4 KiB", "rand-read-d32-4k", Allocations, allocsNone),
		most("allocations per durable write of 1 MiB", "durable-seq-write-d4-1m", Allocations,
			allocsNone),
		most("allocations per read of 1 MiB", "seq-read-d4-1m", Allocations, allocsNone),
		most("bytes copied for each byte written in 1 MiB", "durable-seq-write-d4-1m", Copied, 0),
		most("bytes copied for each byte read in 1 MiB", "seq-read-d4-1m", Copied, 0),
	}
}

// allocsNone is what the runtime itself, the bench and a checkpoint now and then may allocate while
// requests do not: one in five requests at most.
const allocsNone = 0.2

// Verdict is a promise beside what was measured.
type Verdict struct {
	Promise
	Row  Row
	Have float64
	Kept bool
}

// Judge holds rows against promises; those that were not measured are left out.
func Judge(promises []Promise, rows []Row) []Verdict {
	var list []Verdict
	for _, p := range promises {
		for _, r := range rows {
			if r.Case != p.Case || r.Provider != p.Provider || r.Metric != p.Metric {
				continue
			}
			v := Verdict{Promise: p, Row: r, Have: r.Value}
			if p.Ratio {
				v.Have = r.Ratio
			}
			v.Kept = v.Have >= p.Limit
			if p.AtMost {
				v.Kept = v.Have <= p.Limit
			}
			list = append(list, v)
		}
	}
	return list
}

// WriteVerdicts prints verdicts for people.
func WriteVerdicts(w io.Writer, list []Verdict) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ASKED FOR\tLIMIT\tMEASURED\tKEPT\tMEDIAN\tCEILING")
	for _, v := range list {
		limit, have, unit := "at least", fmt.Sprintf("%.2f", v.Have), v.Row.Unit
		if v.AtMost {
			limit = "at most"
		}
		kept := "yes"
		if !v.Kept {
			kept = "NO"
		}
		if v.Ratio {
			unit = "of " + v.Row.Ceiling
		}
		fmt.Fprintf(t, "%s\t%s %.2f %s\t%s\t%s\t%s %s\t%s\n", v.Text, limit, v.Limit, unit, have, kept,
			valueText(v.Row.Value), v.Row.Unit, v.Row.Ceiling)
	}
	return t.Flush()
}
