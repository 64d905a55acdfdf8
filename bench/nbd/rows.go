package nbd

import (
	"slices"

	"github.com/sluice-storage/sluice/bench"
)

func valueKey(w *workload, contender string) string { return w.name() + " " + contender }

// figure is a kind of value that a measurement has.
type figure struct {
	metric, unit string
	of           func(m *measured) float64
	known        func(m *measured) bool // nil: always
}

// figures are those of a column: what it is about, then what it costs.
func figures(w *workload) []figure {
	gib := func(of func(m *measured) float64) func(*measured) float64 {
		return func(m *measured) float64 { return of(m) / float64(m.bytes) * (1 << 30) }
	}
	value := func(metric string) figure {
		return figure{metric: metric, unit: bench.Unit(metric),
			of: func(m *measured) float64 { return m.value(metric) }}
	}
	all := []figure{value(w.metric())}
	if w.beside {
		all = append(all, value(bench.Bandwidth))
	}
	server := func(m *measured) float64 { return m.server.Seconds() }
	client := func(m *measured) float64 { return m.client.Seconds() }
	all = append(all, figure{metric: bench.SystemCPU, unit: bench.PerGiB, of: gib(server)},
		figure{metric: bench.ReaderCPU, unit: bench.PerGiB, of: gib(client)},
		figure{metric: bench.Memory, unit: bench.Unit(bench.Memory),
			of: func(m *measured) float64 { return float64(m.memory) / bench.MiB }})
	for _, s := range States() {
		metric := bench.StateTime + s
		all = append(all, figure{metric: metric, unit: bench.Unit(metric),
			of:    func(m *measured) float64 { return m.states[s] },
			known: func(m *measured) bool { return m.states != nil }})
	}
	return all
}

// States are where a request of ours can be, from its header to the last byte of its reply: it
// waits for its payload, for memory and for its turn; the export works on it; its reply leaves.
func States() []string { return []string{"wait", "run", "send"} }

// rows are the figures of the scene: medians over the rounds, held against the ceiling and against
// the best peer.
func (p *play) rows() (rows []bench.Row) {
	for i := range p.columns {
		w := &p.columns[i]
		for _, f := range figures(w) {
			rows = append(rows, p.compare(w, f)...)
		}
	}
	return rows
}

// compare makes the rows of one figure.
func (p *play) compare(w *workload, f figure) (rows []bench.Row) {
	kinds := map[string]Kind{}
	for _, c := range p.running {
		all := p.values[valueKey(w, c.name)]
		if len(all) == 0 {
			continue
		}
		var values []float64
		for i := range all {
			if f.known == nil || f.known(&all[i]) {
				values = append(values, f.of(&all[i]))
			}
		}
		if values == nil {
			continue
		}
		kinds[c.name] = c.kind
		rows = append(rows, bench.Row{Bench: "nbd", Case: p.scene.caseName(w), Provider: c.name,
			Size: w.size, Depth: w.depth, Conns: w.conns, Metric: f.metric, Unit: f.unit,
			Value: bench.Median(values), Low: slices.Min(values), High: slices.Max(values)})
	}
	if f.metric != bench.Memory { // less of it may be too little
		relate(rows, kinds)
	}
	return rows
}

// relate fills in what rows of one figure are to the ceiling's and to the best peer's.
func relate(rows []bench.Row, kinds map[string]Kind) {
	var ceiling, best *bench.Row
	for i := range rows {
		r := &rows[i]
		switch kinds[r.Provider] {
		case Ceiling:
			ceiling = r
		case Peer:
			if best == nil || better(r, best) {
				best = r
			}
		}
	}
	for i := range rows {
		r := &rows[i]
		if ceiling != nil {
			r.Ceiling = ceiling.Provider
			if ceiling.Value > 0 {
				r.Ratio = r.Value / ceiling.Value
			}
		}
		if best != nil && kinds[r.Provider] == Ours {
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
