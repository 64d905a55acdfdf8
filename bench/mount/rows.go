package mount

import (
	"slices"

	"github.com/sluice-storage/sluice/bench"
)

// series are the measurements of one step on one system, a value a round.
type series struct {
	all []measured
}

func (s *series) add(m measured) { s.all = append(s.all, m) }

func (b *Bench) seriesOf(s *step, c *contender) *series {
	if b.values[s.name] == nil {
		b.values[s.name] = map[string]*series{}
	}
	if b.values[s.name][c.Name()] == nil {
		b.values[s.name][c.Name()] = &series{}
	}
	return b.values[s.name][c.Name()]
}

// figure is a kind of value that a measurement has.
type figure struct {
	metric, unit string
	of           func(m *measured) (v float64, ok bool)
}

// figures are those of a step: what it is about, then what it costs.
func figures(s *step) []figure {
	always := func(of func(m *measured) float64) func(*measured) (float64, bool) {
		return func(m *measured) (float64, bool) { return of(m), true }
	}
	thousand := func(of func(m *measured) float64) func(*measured) (float64, bool) {
		return func(m *measured) (float64, bool) { return of(m) / float64(m.files) * 1000, m.files > 0 }
	}
	gib := func(of func(m *measured) float64) func(*measured) (float64, bool) {
		return func(m *measured) (float64, bool) {
			return of(m) / float64(m.bytes) * (1 << 30), m.bytes > 0
		}
	}
	system := func(m *measured) float64 { return m.system.Seconds() }
	reader := func(m *measured) float64 { return m.reader.Seconds() }
	return []figure{
		{s.metric, unitOf(s.metric), always(func(m *measured) float64 { return m.value(s.metric) })},
		{bench.SystemCPU, bench.PerThousand, thousand(system)},
		{bench.SystemCPU, bench.PerGiB, gib(system)},
		{bench.ReaderCPU, bench.PerThousand, thousand(reader)},
		{bench.ReaderCPU, bench.PerGiB, gib(reader)},
		{bench.Memory, "MiB",
			always(func(m *measured) float64 { return float64(m.memory) / bench.MiB })},
	}
}

// rows are the figures of the run: medians over the rounds, held against the ceiling and against
// the best peer.
func (b *Bench) rows() []bench.Row {
	var rows []bench.Row
	for _, s := range b.steps {
		if s.hidden {
			continue
		}
		for _, f := range figures(s) {
			rows = append(rows, b.compare(s, f)...)
		}
	}
	return rows
}

// compare makes the rows of one figure.
func (b *Bench) compare(s *step, f figure) []bench.Row {
	var rows []bench.Row
	for _, c := range b.running {
		series := b.values[s.name][c.Name()]
		if series == nil {
			continue
		}
		var values []float64
		for i := range series.all {
			if v, ok := f.of(&series.all[i]); ok {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			continue
		}
		rows = append(rows, bench.Row{Bench: "mount", Case: s.name, Provider: c.Name(), Size: s.size,
			Depth: s.depth, Metric: f.metric, Unit: f.unit, Value: bench.Median(values),
			Low: slices.Min(values), High: slices.Max(values)})
	}
	if f.metric != bench.Memory { // less of it may be too little
		relate(rows, b.peers())
	}
	return rows
}

func (b *Bench) peers() (names []string) {
	for _, c := range b.running {
		if c.peer {
			names = append(names, c.Name())
		}
	}
	return names
}

// relate fills in what rows of one figure are to the ceiling's and to the best peer's.
func relate(rows []bench.Row, peers []string) {
	var ceiling, best *bench.Row
	for i := range rows {
		r := &rows[i]
		if r.Provider == Memory {
			ceiling = r
		}
		if slices.Contains(peers, r.Provider) && (best == nil || better(r, best)) {
			best = r
		}
	}
	for i := range rows {
		r := &rows[i]
		if ceiling != nil {
			r.Ceiling = Memory
			if ceiling.Value > 0 {
				r.Ratio = r.Value / ceiling.Value
			}
		}
		if best != nil && r.Provider == Sluice {
			r.Peer = best.Provider
			if best.Value > 0 {
				r.PeerRatio = r.Value / best.Value
			}
		}
	}
}

// better tells whether a's figure is better than b's, of the same metric.
func better(a, b *bench.Row) bool {
	if a.Metric == bench.Rate || a.Metric == bench.Bandwidth {
		return a.Value > b.Value
	}
	return a.Value < b.Value
}
