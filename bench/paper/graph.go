package paper

import (
	"fmt"
	"strings"

	"github.com/sluice-storage/sluice/bench"
)

// Graph is a figure of a paper, or one half of it: its axes, and where the figures are found.
type Graph struct {
	Title string
	X     string // what the ticks are
	Unit  string
	Bars  bool
	Ticks []Label
	Lines []Label
	At    func(tick, line string) Cell // by their keys
}

// Label is a tick or a line: what is looked for, and what it is called.
type Label struct {
	Key, Name string
	Maybe     bool // not every host or size has it: nobody is told that it is missing
}

// Cell finds a figure in what was measured; nil: it was not.
type Cell func(bench.Rows) *bench.Mark

// labels are some: each "key=name", or "key" that is its own name; "?key" may be missing.
func labels(all ...string) (list []Label) {
	for _, one := range all {
		one, maybe := strings.CutPrefix(one, "?")
		key, name, ok := strings.Cut(one, "=")
		if !ok {
			name = key
		}
		list = append(list, Label{key, name, maybe})
	}
	return list
}

// sizes are labels of sizes such as 64k.
func sizes(all string) (list []Label) {
	for _, one := range strings.Fields(all) {
		name := strings.NewReplacer("k", " KiB", "m", " MiB").Replace(one)
		if name == one {
			name += " B"
		}
		list = append(list, Label{Key: one, Name: name})
	}
	return list
}

// chart is the graph with what was measured, and what was not. Lines without a figure are left out.
func (g *Graph) chart(rows []bench.Row) (c bench.Chart, missing []string) {
	c = bench.Chart{Title: g.Title, X: g.X, Unit: g.Unit, Bars: g.Bars}
	for _, t := range g.Ticks {
		c.Ticks = append(c.Ticks, t.Name)
	}
	for _, l := range g.Lines {
		line := bench.ChartLine{Name: l.Name}
		var not []string
		for _, t := range g.Ticks {
			m := g.At(t.Key, l.Key)(rows)
			if line.At = append(line.At, m); m == nil {
				not = append(not, t.Name)
			}
		}
		if len(not) < len(g.Ticks) {
			c.Lines = append(c.Lines, line)
		}
		if not != nil && !l.Maybe {
			missing = append(missing, fmt.Sprintf("%s: %s at %s", g.Title, l.Name,
				strings.Join(not, ", ")))
		}
	}
	return c, missing
}

// value is a row's figure; metric is "" for that of the case.
func value(name, provider, metric string) Cell {
	return func(rows bench.Rows) *bench.Mark {
		r := rows.Find(name, provider, metric)
		if r == nil {
			return nil
		}
		return &bench.Mark{Value: r.Value, Low: r.Low, High: r.High}
	}
}

// scaled is a figure times another number.
func scaled(c Cell, by float64) Cell {
	return func(rows bench.Rows) *bench.Mark {
		m := c(rows)
		if m == nil {
			return nil
		}
		return &bench.Mark{Value: by * m.Value, Low: by * m.Low, High: by * m.High}
	}
}

// megabytes is MB/s of a case, also where it is of operations: small ones are counted.
func megabytes(name, provider string) Cell {
	return func(rows bench.Rows) *bench.Mark {
		r := rows.Find(name, provider, "")
		if r == nil {
			return nil
		}
		m := &bench.Mark{Value: r.Value, Low: r.Low, High: r.High}
		if r.Metric == bench.Rate {
			by := float64(r.Size) / 1e6
			m.Value, m.Low, m.High = by*m.Value, by*m.Low, by*m.High
		}
		return m
	}
}

// minus is the difference of two figures.
func minus(a, b Cell) Cell { return plus(a, scaled(b, -1)) }

// plus is their sum.
func plus(a, b Cell) Cell {
	return func(rows bench.Rows) *bench.Mark {
		x, y := a(rows), b(rows)
		if x == nil || y == nil {
			return nil
		}
		v := x.Value + y.Value
		return &bench.Mark{Value: v, Low: v, High: v}
	}
}

// of is a figure alone.
func of(c Cell) bench.Finder {
	return func(rows bench.Rows) (float64, bool) {
		m := c(rows)
		if m == nil {
			return 0, false
		}
		return m.Value, true
	}
}

// through is one figure through another.
func through(a, b Cell) bench.Finder { return bench.Both(of(a), of(b), bench.Through) }

// most is the largest of figures, of those that there are.
func most(cells ...Cell) bench.Finder {
	return func(rows bench.Rows) (v float64, ok bool) {
		for _, c := range cells {
			if m := c(rows); m != nil && (!ok || m.Value > v) {
				v, ok = m.Value, true
			}
		}
		return v, ok
	}
}
