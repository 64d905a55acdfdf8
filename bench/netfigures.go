package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Figure is one of those that the message layer is asked for.
type Figure struct {
	Name     string  `json:"name"`     // what is asked
	Measured float64 `json:"measured"` // what was measured
	Unit     string  `json:"unit"`     // "us", "x" (times what it is held against), ...
	Limit    float64 `json:"limit"`
	Least    bool    `json:"least"` // the limit is a lower one
	Met      bool    `json:"met"`
	Told     bool    `json:"told,omitempty"` // nothing is asked: it is only printed
}

// FigureCases are the names of the cases that figures are made of.
func FigureCases() []string {
	return []string{"rtt-8", "rtt-8-spin", "rate-4k-d32", "bulk-1m", "bulk-1m-out",
		"contig-16x64k", "layers-8", "layers-8-spin"}
}

// figures makes figures of rows.
type figures struct {
	rows []Row
	all  []Figure
}

// Figures are all that the rows have something about. Those against gRPC are not among them, see
// the module in grpcpeer.
func Figures(rows []Row) []Figure {
	f := &figures{rows: rows}
	f.ratio("tcp: rtt-8 against plain Go TCP", "rtt-8", tcpProvider, 1.25, false)
	f.ratio("tcp: bulk-1m against plain Go TCP", "bulk-1m", tcpProvider, 0.90, true)
	f.ratio("tcp: bulk-1m-out against plain Go TCP", "bulk-1m-out", tcpProvider, 0.90, true)
	if r := f.row("rtt-8-spin", shmProvider); r != nil {
		f.add("shm: rtt-8-spin", r.Value, "us", 1.5, false)
	}
	f.ratio("shm: rtt-8 asleep against plain Go TCP", "rtt-8", shmProvider+", asleep", 0.60, false)
	f.ratio("shm: bulk-1m against a shared-memory copy", "bulk-1m", shmProvider, 0.85, true)
	f.ratio("shm: bulk-1m-out against a shared-memory copy", "bulk-1m-out", shmProvider, 0.85, true)
	f.ratio("shm: bulk-1m-out, touched once more, against it", "bulk-1m-out", shmProvider+", touched",
		0.85, true)
	f.gathers()
	f.layer(tcpProvider, 2)
	f.layer(shmProvider, 0.5)
	for _, p := range []string{tcpProvider, shmProvider} {
		if r := f.row("rtt-8", p); r != nil && r.Allocs != nil {
			f.add(p+": allocations per request", *r.Allocs, "per request", 0.01, false)
		}
	}
	return f.all
}

func (f *figures) row(name, provider string) *Row { return f.rowOf(name, provider, "") }

// rowOf is a row by its metric; "" is the case's.
func (f *figures) rowOf(name, provider, metric string) *Row {
	for i := range f.rows {
		r := &f.rows[i]
		if r.Case != name || r.Provider != provider {
			continue
		}
		if r.Metric == metric || metric == "" && r.Metric != Requests && r.Metric != Doorbells {
			return r
		}
	}
	return nil
}

func (f *figures) add(name string, v float64, unit string, limit float64, least bool) {
	met := v <= limit
	if least {
		met = v >= limit
	}
	f.all = append(f.all, Figure{Name: name, Measured: v, Unit: unit, Limit: limit, Least: least,
		Met: met})
}

func (f *figures) ratio(name, of, provider string, limit float64, least bool) {
	if r := f.row(of, provider); r != nil && r.Ratio > 0 {
		f.add(name, r.Ratio, "x", limit, least)
	}
}

func (f *figures) gathers() {
	const gather, pack = "gather-16x64k", "pack-16x64k"
	if g, p := f.row(gather, shmProvider), f.row(pack, shmProvider); g != nil && p != nil {
		f.add("shm: gather-16x64k against pack-16x64k", g.Value/p.Value, "x", 1.5, true)
		f.add("shm: gather-16x64k against contig-16x64k", g.Ratio, "x", 0.95, true)
	}
	g := f.row(gather, verbsProvider)
	if g == nil {
		return
	}
	if g.Copies != nil {
		f.add("verbs: gather-16x64k, copies per byte", *g.Copies, "", 0, false)
	}
	if r := f.rowOf(gather, verbsProvider, Requests); r != nil {
		f.add("verbs: gather-16x64k, work requests per destination", r.Value/pieces, "", 1, false)
	}
	if r := f.rowOf(gather, verbsProvider, Doorbells); r != nil {
		f.add("verbs: gather-16x64k, doorbells", r.Value, "per move", 1, false)
	}
}

// layer is what package msg adds to the fabric's round trip: the difference of the medians, and of
// the quickest rounds, which a busy machine disturbs less.
func (f *figures) layer(provider string, limit float64) {
	for _, c := range []string{"layers-8", "layers-8-spin"} {
		base, all := f.row(c, provider+", "+layerBase), f.row(c, provider+", "+layerMsg)
		if base != nil && all != nil {
			name := provider + ": the message layer adds (" + c
			f.add(name+")", all.Value-base.Value, "us", limit, false)
			f.add(name+", quickest rounds)", all.Low-base.Low, "us", limit, false)
		}
	}
}

// WriteFigures prints them for people.
func WriteFigures(w io.Writer, all []Figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tMEASURED\tASKED\t")
	for _, f := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Name, f.valueText(), f.limitText(), f.metText())
	}
	return t.Flush()
}

func (f *Figure) valueText() string {
	if f.Unit == "x" {
		return fmt.Sprintf("%.2f x", f.Measured)
	}
	return strings.TrimSpace(valueText(f.Measured) + " " + f.Unit)
}

func (f *Figure) limitText() string {
	if f.Told {
		return "printed"
	}
	if f.Least {
		return fmt.Sprintf("at least %g", f.Limit)
	}
	return fmt.Sprintf("at most %g", f.Limit)
}

func (f *Figure) metText() string {
	if f.Told {
		return ""
	}
	if f.Met {
		return "met"
	}
	return "NOT MET"
}

// WriteFiguresJSON prints them for programs.
func WriteFiguresJSON(w io.Writer, all []Figure) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(all)
}
