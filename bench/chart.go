package bench

// Chart is one pair of axes, with what somebody has chosen to be shown in it: lines over ticks that
// lie equally far apart, or bars.
type Chart struct {
	Title string      `json:"title"`
	X     string      `json:"x"` // what the ticks are
	Unit  string      `json:"unit"`
	Bars  bool        `json:"bars,omitempty"`
	Ticks []string    `json:"ticks"`
	Lines []ChartLine `json:"lines"`
}

// ChartLine is a line, or the bars of one color.
type ChartLine struct {
	Name    string  `json:"name"`
	Ceiling bool    `json:"ceiling,omitempty"` // it is dashed
	At      []*Mark `json:"at"`                // for each tick; nil: nothing was measured
}

// Mark is a figure, with the lowest and the highest of its rounds.
type Mark struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// PlotCharts draws charts as an SVG file. Those without any figure are left out.
func PlotCharts(about About, charts []Chart) []byte {
	var panels []*panel
	for i := range charts {
		if p := charts[i].panel(); len(p.rows) > 0 {
			panels = append(panels, p)
		}
	}
	return draw(about, panels)
}

// panel is the chart as rows: a tick is their case, its place their size.
func (c *Chart) panel() *panel {
	p := &panel{title: c.Title, sweep: !c.Bars, x: c.X, y: c.Unit}
	for i, tick := range c.Ticks {
		for _, l := range c.Lines {
			if m := l.At[i]; m != nil {
				r := Row{Case: tick, Provider: l.Name, Size: 1 << i, Value: m.Value, Low: m.Low,
					High: m.High}
				if l.Ceiling {
					r.Ceiling = r.Provider
				}
				p.rows = append(p.rows, r)
			}
		}
	}
	return p
}
