package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Figure is a promise beside what was measured.
type Figure struct {
	Name     string  `json:"name"`     // what is asked
	Measured float64 `json:"measured"` // what was measured
	Unit     string  `json:"unit"`     // "us", Times, ...
	Limit    float64 `json:"limit"`
	Least    bool    `json:"least"` // the limit is a lower one
	Met      bool    `json:"met"`
	Told     bool    `json:"told,omitempty"` // no bound: it is only printed
}

// Promise is what is asked of a bench. Each bench has a table of them.
type Promise struct {
	Name  string
	Bound Bound
	Limit float64
	Unit  string
	Of    Finder
	Also  func(Rows) string // what stands behind the name; nil: nothing
}

// Bound tells what the limit of a promise is.
type Bound uint8

// The bounds.
const (
	Most  Bound = iota // the figure is at most the limit
	Least              // it is at least the limit
	Told               // it is printed, without a bound
)

// Times is the unit of figures that are ratios.
const Times = "x"

// Rows are searched for what promises are about.
type Rows []Row

// Find is the first row of a case by a provider: that of the case's own metric. With a metric it is
// the row of that one. nil: there is none.
func (rows Rows) Find(name, provider, metric string) *Row {
	for i := range rows {
		r := &rows[i]
		if r.Case == name && r.Provider == provider && (metric == "" || r.Metric == metric) {
			return r
		}
	}
	return nil
}

// Finder finds a figure, or that the rows have nothing about it.
type Finder func(Rows) (v float64, ok bool)

// Value is the figure of a row; metric is "" for that of the case.
func Value(name, provider, metric string) Finder {
	return func(rows Rows) (float64, bool) {
		r := rows.Find(name, provider, metric)
		if r == nil {
			return 0, false
		}
		return r.Value, true
	}
}

// Quickest is the figure of the quickest round, which a busy machine disturbs least.
func Quickest(name, provider string) Finder {
	return func(rows Rows) (float64, bool) {
		r := rows.Find(name, provider, "")
		if r == nil {
			return 0, false
		}
		return r.Low, true
	}
}

// Ratio is a row through its ceiling.
func Ratio(name, provider string) Finder {
	return func(rows Rows) (float64, bool) {
		r := rows.Find(name, provider, "")
		if r == nil || r.Ratio == 0 {
			return 0, false
		}
		return r.Ratio, true
	}
}

// CostOf is a part of what a row costs.
func CostOf(name, provider string, part func(*Cost) *float64) Finder {
	return func(rows Rows) (float64, bool) {
		r := rows.Find(name, provider, "")
		if r == nil || part(&r.Cost) == nil {
			return 0, false
		}
		return *part(&r.Cost), true
	}
}

// Allocs is how many allocations a request takes in both processes.
func Allocs(c *Cost) *float64 { return c.Allocs }

// Copies is how often a byte is copied by our code.
func Copies(c *Cost) *float64 { return c.Copies }

// Both computes a figure of two others.
func Both(a, b Finder, of func(a, b float64) float64) Finder {
	return func(rows Rows) (float64, bool) {
		x, okX := a(rows)
		y, okY := b(rows)
		if !okX || !okY {
			return 0, false
		}
		return of(x, y), true
	}
}

// Through divides.
func Through(a, b float64) float64 { return a / b }

// Minus subtracts.
func Minus(a, b float64) float64 { return a - b }

// Judge holds rows against promises. Those that the rows have nothing about are left out.
func Judge(promises []Promise, rows Rows) []Figure {
	var all []Figure
	for _, p := range promises {
		v, ok := p.Of(rows)
		if !ok {
			continue
		}
		f := Figure{Name: p.Name, Measured: v, Unit: p.Unit, Limit: p.Limit, Least: p.Bound == Least,
			Told: p.Bound == Told}
		f.Met = f.Told || !f.Least && v <= p.Limit || f.Least && v >= p.Limit
		if p.Also != nil {
			f.Name += p.Also(rows)
		}
		all = append(all, f)
	}
	return all
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
	if f.Unit == Times {
		return fmt.Sprintf("%.2f x", f.Measured)
	}
	return strings.TrimSpace(ValueText(f.Measured) + " " + f.Unit)
}

func (f *Figure) limitText() string {
	switch {
	case f.Told:
		return "printed"
	case f.Least:
		return fmt.Sprintf("at least %g", f.Limit)
	}
	return fmt.Sprintf("at most %g", f.Limit)
}

func (f *Figure) metText() string {
	switch {
	case f.Told:
		return ""
	case f.Met:
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
