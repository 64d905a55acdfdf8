package bench

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// About is what stands with a drawing or a table, so that the figures mean something.
type About struct {
	Title   string
	Machine string   // see Machine
	Command string   // what repeats the measurement
	Figures []Figure // what is promised of it, for tables; may be empty
}

// Sizes of a drawing.
const (
	panelWidth = 560.0
	plotLeft   = 70.0 // of the axes, in a panel
	plotRight  = 540.0
	plotTop    = 40.0
	plotBottom = 260.0
	headHeight = 40.0
	footHeight = 50.0
	legendTop  = plotBottom + 60.0
	legendStep = 16.0
	titleStep  = 24.0

	titleLetter = 11.5 // how wide a letter is, about
	footLetter  = 6.6
)

// Plot draws rows as an SVG file: sweeps over sizes as lines, a panel for each kind of operation,
// sizes on a logarithmic axis; everything else as bars, a panel for each metric. Ceilings are
// dashed. Thin upright lines reach from the lowest to the highest of the rounds.
func Plot(about About, rows []Row) []byte { return draw(about, makePanels(rows)) }

func draw(about About, panels []*panel) []byte {
	colors := colorsOf(panels)
	width := float64(min(2, max(1, len(panels)))) * panelWidth
	title := wrap(about.Title, int((width-40)/titleLetter))
	foot := append(wrap("Machine: "+about.Machine, int((width-40)/footLetter)),
		wrap("Command: "+about.Command+
			" (medians; thin lines: lowest to highest round; dashed: ceilings)",
			int((width-40)/footLetter))...)
	// Of the lines of panels, and the end of the last.
	tops := []float64{headHeight + titleStep*float64(len(title)-1)}
	for i := 0; i < len(panels); i += 2 {
		height := 0.0
		for _, p := range panels[i:min(i+2, len(panels))] {
			height = max(height, p.height())
		}
		tops = append(tops, tops[len(tops)-1]+height)
	}
	var s svg
	height := tops[len(tops)-1] + footHeight + legendStep*float64(len(foot)-2)
	s.begin(width, height)
	for i, line := range title {
		s.text(20, 28+titleStep*float64(i), line, `font-size="20"`, `font-weight="bold"`)
	}
	for i, p := range panels {
		fmt.Fprintf(&s.b, "<g transform=\"translate(%s %s)\">\n", num(float64(i%2)*panelWidth),
			num(tops[i/2]))
		p.draw(&s, colors)
		s.b.WriteString("</g>\n")
	}
	for i, line := range foot {
		s.text(20, height-12-legendStep*float64(len(foot)-1-i), line, `fill="#555"`)
	}
	return s.end()
}

// panel is one pair of axes.
type panel struct {
	title, metric string
	rows          []Row
	sweep         bool
	x, y          string // what the axes are of a Chart; "": what rows say
}

// sweepMin is how many sizes make a sweep.
const sweepMin = 3

// makePanels sorts rows into sweeps (write-4k, write-64k, write-1m) and the rest.
func makePanels(rows []Row) []*panel {
	type family struct{ name, metric string }
	sizes := map[family]map[int64]bool{}
	familyOf := func(r Row) family {
		m := regexp.MustCompile(`^(.+)-\d+[km]?$`).FindStringSubmatch(r.Case)
		if m == nil {
			return family{}
		}
		return family{m[1], r.Metric}
	}
	for _, r := range rows {
		f := familyOf(r)
		if sizes[f] == nil {
			sizes[f] = map[int64]bool{}
		}
		sizes[f][r.Size] = true
	}
	var sweeps, bars []*panel
	add := func(list []*panel, title string, r Row, sweep bool) []*panel {
		i := slices.IndexFunc(list, func(p *panel) bool { return p.title == title })
		if i < 0 {
			i = len(list)
			list = append(list, &panel{title: title, metric: r.Metric, sweep: sweep})
		}
		list[i].rows = append(list[i].rows, r)
		return list
	}
	for _, r := range rows {
		if f := familyOf(r); f.name != "" && len(sizes[f]) >= sweepMin {
			sweeps = add(sweeps, f.name+" by size: "+r.Metric, r, true)
		} else {
			bars = add(bars, "by case: "+r.Metric, r, false)
		}
	}
	return append(sweeps, bars...)
}

// scale maps values to positions.
type scale struct {
	from, to float64 // values, or their logarithms
	a, b     float64 // positions
	log      bool
	ticks    []float64
}

func (s *scale) at(v float64) float64 {
	if s.log {
		v = math.Log10(max(v, 1e-9))
	}
	if s.to == s.from {
		return (s.a + s.b) / 2
	}
	return s.a + (v-s.from)/(s.to-s.from)*(s.b-s.a)
}

// logFrom is how far apart values are when only logarithms can show them.
const logFrom = 8

// yScale begins at 0, unless the values are so far apart that only logarithms can show them.
func (p *panel) yScale() *scale {
	least, most := math.Inf(1), 0.0
	for _, r := range p.rows {
		least, most = min(least, r.Value), max(most, r.Value, r.High)
		if r.Low > 0 {
			least = min(least, r.Low)
		}
	}
	s := &scale{a: plotBottom, b: plotTop}
	if most <= 0 {
		most = 1
	}
	if p.sweep && least > 0 && most/least > logFrom {
		s.log = true
		s.from, s.to = math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
		for e := s.from; e <= s.to; e++ {
			s.ticks = append(s.ticks, math.Pow(10, e))
		}
		return s
	}
	step := math.Pow(10, math.Floor(math.Log10(most/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if most/(m*step) <= 6 {
			step *= m
			break
		}
	}
	for v := 0.0; v < most+step; v += step {
		s.ticks = append(s.ticks, v)
	}
	s.to = s.ticks[len(s.ticks)-1]
	return s
}

func (p *panel) draw(s *svg, colors map[string]string) {
	y := p.yScale()
	s.text(plotLeft, 22, p.title, `font-size="14"`, `font-weight="bold"`)
	for _, v := range y.ticks {
		s.line(plotLeft, y.at(v), plotRight, y.at(v), "#ddd")
		s.text(plotLeft-6, y.at(v)+4, tickText(v), atEnd)
	}
	middle := (plotTop + plotBottom) / 2
	s.text(16, middle, cmp.Or(p.y, p.metric+", "+unitOf(p.metric)), atMiddle,
		attr(fmt.Sprintf(`transform="rotate(-90 16 %s)"`, num(middle))))
	if p.sweep {
		p.drawLines(s, y, colors)
	} else {
		p.drawBars(s, y, colors)
	}
	s.line(plotLeft, plotBottom, plotRight, plotBottom, "#222")
	s.line(plotLeft, plotTop, plotLeft, plotBottom, "#222")
	p.legend(s, colors)
}

func tickText(v float64) string {
	if v >= 10000 {
		return fmt.Sprintf("%gk", v/1000)
	}
	return fmt.Sprintf("%.4g", v)
}

// seriesOf is whom a row belongs to. One provider may have several depths in a case.
func (p *panel) seriesOf(r Row) string {
	for _, other := range p.rows {
		if other.Case == r.Case && other.Provider == r.Provider && other.Depth != r.Depth {
			return fmt.Sprintf("%s, depth %d", r.Provider, r.Depth)
		}
	}
	return r.Provider
}

// series are the names of all, in the order of the rows.
func (p *panel) series() []string {
	var names []string
	for _, r := range p.rows {
		if name := p.seriesOf(r); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// colorsOf gives every series a color, the same one in all panels. They can be distinguished by
// colour-blind readers, too.
func colorsOf(panels []*panel) map[string]string {
	palette := []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6d3b"}
	grays := []string{"#555", "#999", "#777", "#bbb"}
	colors := map[string]string{}
	ours, theirs := 0, 0
	for _, p := range panels {
		for _, name := range p.series() {
			if colors[name] != "" {
				continue
			}
			if p.isCeiling(name) {
				colors[name] = grays[theirs%len(grays)]
				theirs++
			} else {
				colors[name] = palette[ours%len(palette)]
				ours++
			}
		}
	}
	return colors
}

func (p *panel) isCeiling(series string) bool {
	return slices.ContainsFunc(p.rows, func(r Row) bool {
		return r.IsCeiling() && p.seriesOf(r) == series
	})
}

// drawLines draws a sweep: one line for each series.
func (p *panel) drawLines(s *svg, y *scale, colors map[string]string) {
	sizes := map[int64]bool{}
	for _, r := range p.rows {
		sizes[r.Size] = true
	}
	all := slices.Sorted(maps.Keys(sizes))
	x := &scale{log: true, from: math.Log10(float64(all[0])),
		to: math.Log10(float64(all[len(all)-1])), a: plotLeft + 20, b: plotRight - 20}
	for _, size := range all {
		at := x.at(float64(size))
		s.line(at, plotBottom, at, plotBottom+5, "#222")
		s.text(at, plotBottom+18, p.tick(size), atMiddle)
	}
	s.text((plotLeft+plotRight)/2, plotBottom+36,
		cmp.Or(p.x, "size of one operation (logarithmic)"), atMiddle)
	for i, name := range p.series() {
		var points [][2]float64
		for _, r := range p.rows {
			if p.seriesOf(r) != name {
				continue
			}
			at := x.at(float64(r.Size))
			points = append(points, [2]float64{at, y.at(r.Value)})
			s.dot(at, y.at(r.Value), colors[name])
			shift := at + 1.5*float64(i) // so that those of one size lie beside each other
			s.line(shift, y.at(r.Low), shift, y.at(r.High), colors[name], `opacity="0.6"`)
		}
		var style []attr
		if p.isCeiling(name) {
			style = append(style, dashed)
		}
		s.path(points, colors[name], style...)
	}
}

// tick is what stands below a place of a sweep: of a Chart the name of its tick.
func (p *panel) tick(size int64) string {
	for _, r := range p.rows {
		if r.Size == size && p.x != "" {
			return r.Case
		}
	}
	return SizeText(size)
}

// drawBars draws a group of bars for each case.
func (p *panel) drawBars(s *svg, y *scale, colors map[string]string) {
	var cases []string
	for _, r := range p.rows {
		if !slices.Contains(cases, r.Case) {
			cases = append(cases, r.Case)
		}
	}
	width := (plotRight - plotLeft) / float64(len(cases))
	for i, name := range cases {
		var group []Row
		for _, r := range p.rows {
			if r.Case == name {
				group = append(group, r)
			}
		}
		left := plotLeft + float64(i)*width
		bar := min(60, width*0.85/float64(len(group)))
		at := left + (width-bar*float64(len(group)))/2
		for _, r := range group {
			color := colors[p.seriesOf(r)]
			style := []attr{`opacity="0.85"`}
			if r.IsCeiling() {
				style = []attr{`fill-opacity="0.2"`, attr(`stroke="` + color + `"`), dashed}
			}
			top := y.at(r.Value)
			s.rect(at+1, top, bar-2, plotBottom-top, color, style...)
			s.line(at+bar/2, y.at(r.Low), at+bar/2, y.at(r.High), "#222")
			at += bar
		}
		for j, line := range wrap(name, int(width/6.6)) {
			s.text(left+width/2, plotBottom+16+14*float64(j), line, atMiddle)
		}
	}
}

// wrap breaks a text at blanks.
func wrap(text string, most int) []string {
	var lines []string
	for _, word := range strings.Fields(text) {
		if n := len(lines); n > 0 && len(lines[n-1])+1+len(word) <= most {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// entry is where a series is named.
type entry struct {
	name string
	x, y float64
}

// entries are the places in the legend, below the axes.
func (p *panel) entries() []entry {
	var all []entry
	x, y := plotLeft, legendTop
	for _, name := range p.series() {
		length := 34 + textWidth(name)
		if x > plotLeft && x+length > plotRight+10 {
			x, y = plotLeft, y+legendStep
		}
		all = append(all, entry{name, x, y})
		x += length + 8
	}
	return all
}

// height is that of the panel with its legend.
func (p *panel) height() float64 {
	all := p.entries()
	return all[len(all)-1].y + 2*legendStep
}

func (p *panel) legend(s *svg, colors map[string]string) {
	for _, e := range p.entries() {
		style := []attr{`stroke-width="3"`}
		if p.isCeiling(e.name) {
			style = append(style, dashed)
		}
		s.line(e.x, e.y-4, e.x+22, e.y-4, colors[e.name], style...)
		s.text(e.x+27, e.y, e.name, atStart)
	}
}
