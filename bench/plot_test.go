package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawing is what a parser finds in an SVG file.
type drawing struct {
	elements map[string]int
	texts    []string
}

// parseSVG reads a drawing as a browser would: well-formed, of SVG's own names, every coordinate a
// number.
func parseSVG(text []byte) (*drawing, error) {
	d := &drawing{elements: map[string]int{}}
	dec := xml.NewDecoder(bytes.NewReader(text))
	dec.Strict = true
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return d, nil
		}
		if err != nil {
			return nil, err
		}
		switch e := token.(type) {
		case xml.StartElement:
			if e.Name.Space != "http://www.w3.org/2000/svg" {
				return nil, errors.New("not SVG's: " + e.Name.Local)
			}
			d.elements[e.Name.Local]++
			for _, a := range e.Attr {
				for _, bad := range []string{"NaN", "Inf"} {
					if strings.Contains(a.Value, bad) {
						return nil, errors.New(a.Name.Local + " is " + a.Value)
					}
				}
			}
		case xml.CharData:
			if text := strings.TrimSpace(string(e)); text != "" {
				d.texts = append(d.texts, text)
			}
		}
	}
}

func TestPlotIsAValidDrawing(t *testing.T) {
	about := About{Title: "a <title> & more", Machine: "2 cores", Command: "sluice bench x"}
	text := Plot(about, sampleRows())
	d, err := parseSVG(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	all := strings.Join(d.texts, "\n")
	for _, want := range []string{
		about.Title, "Machine: 2 cores", "Command: sluice bench x", // caption
		"write by size: bandwidth", "bandwidth, MB/s", "size of one operation", "64 KiB", // a sweep
		"rate, op/s", "tcp, depth 4", "plain Go TCP", `verbs <&> "more"`, // bars and legends
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in the drawing's texts:\n%s", want, all)
		}
	}
	if d.elements["polyline"] != 2 { // of the sweep: ours and the ceiling
		t.Errorf("%d lines", d.elements["polyline"])
	}
	if !bytes.Contains(text, []byte(dashed)) {
		t.Error("no ceiling is dashed")
	}
	golden(t, "plot.svg", text)
}

func TestPlotDrawsAnyRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Row {
			v := rapid.Float64Range(0, 1e9).Draw(t, "value")
			return Row{
				Bench:    "x",
				Case:     rapid.SampledFrom([]string{"a-4k", "a-64k", "a-1m", "b c d", ""}).Draw(t, "case"),
				Provider: rapid.StringOfN(rapid.RuneFrom([]rune("a<&\"'>é\n")), 0, 5, -1).Draw(t, "by"),
				Size:     rapid.Int64Range(1, 1<<40).Draw(t, "size"),
				Depth:    rapid.IntRange(1, 64).Draw(t, "depth"),
				Metric:   rapid.SampledFrom([]string{Latency, Rate, CPU}).Draw(t, "metric"),
				Value:    v, Low: v / 2, High: v * 2,
			}
		}), 0, 30).Draw(t, "rows")
		text := Plot(About{}, rows)
		if _, err := parseSVG(text); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	})
}

func TestScales(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
	bars := &panel{rows: []Row{{Value: 3900, High: 4100}}}
	s := bars.yScale()
	if s.log || s.ticks[0] != 0 || s.to < 4100 || s.to > 6000 || len(s.ticks) > 9 {
		t.Errorf("%+v", s)
	}
	if !near(s.at(0), plotBottom) || !near(s.at(s.to), plotTop) {
		t.Errorf("0 is at %v, the top at %v", s.at(0), s.at(s.to))
	}
	wide := &panel{sweep: true, rows: []Row{{Value: 2, High: 2}, {Value: 700, High: 800}}}
	s = wide.yScale()
	if !s.log || !near(s.at(1), plotBottom) || !near(s.at(1000), plotTop) {
		t.Errorf("%+v", s)
	}
}

func TestWrap(t *testing.T) {
	got := strings.Join(wrap("read from a server's cache", 12), "|")
	if got != "read from a|server's|cache" {
		t.Error(got)
	}
}

// A chart has its own ticks and axes; what was not measured is no point, and a chart without any
// figure is not drawn. Long titles stay within the drawing.
func TestCharts(t *testing.T) {
	mark := func(v float64) *Mark { return &Mark{v, v - 1, v + 1} }
	title := strings.TrimSpace(strings.Repeat("a very long title ", 8))
	d, err := parseSVG(PlotCharts(About{Title: title, Machine: "here", Command: "that"}, []Chart{
		{Title: "lines", X: "clients", Unit: "MB/s", Ticks: []string{"one", "two", "four"},
			Lines: []ChartLine{{Name: "us", At: []*Mark{mark(10), nil, mark(30)}},
				{Name: "limit", Ceiling: true, At: []*Mark{mark(40), mark(40), mark(40)}}}},
		{Title: "bars", X: "path", Unit: "%", Bars: true, Ticks: []string{"near"},
			Lines: []ChartLine{{Name: "us", At: []*Mark{mark(50)}}}},
		{Title: "nothing", Unit: "us", Ticks: []string{"x"},
			Lines: []ChartLine{{Name: "nobody", At: []*Mark{nil}}}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if d.elements["circle"] != 5 || d.elements["polyline"] != 2 || d.elements["rect"] != 2 {
		t.Errorf("%v", d.elements)
	}
	for _, want := range []string{"one", "two", "four", "clients", "MB/s", "near", "%", "us",
		"limit"} {
		if !slices.Contains(d.texts, want) {
			t.Errorf("no text %q in %q", want, d.texts)
		}
	}
	for _, text := range d.texts {
		if text == title || text == "nothing" || text == "nobody" {
			t.Errorf("%q is there", text)
		}
	}
	if !strings.Contains(strings.Join(d.texts, " "), title) {
		t.Errorf("the title is cut: %q", d.texts)
	}
}
