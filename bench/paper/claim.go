package paper

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/bench"
)

// Claim is what a paper says, beside what was measured.
type Claim struct {
	What  string
	Paper string // in its own units
	Here  []Here
	Holds func(v []float64) bool // as in the paper, of the figures in Here; nil: it says no shape
	Why   string                 // nothing here compares, because of that; "": something does
}

// Here is a figure that compares.
type Here struct {
	By   string // of which of several; "": there is one
	Of   bench.Finder
	Unit string
}

// told is a claim of one figure that says no shape: microseconds and MB/s of other hardware.
func told(what, paper, unit string, of bench.Finder) Claim {
	return Claim{What: what, Paper: paper, Here: []Here{{Of: of, Unit: unit}}}
}

// shape is a claim about a ratio.
func shape(what, paper string, of bench.Finder, holds func([]float64) bool) Claim {
	return Claim{What: what, Paper: paper, Here: []Here{{Of: of, Unit: bench.Times}}, Holds: holds}
}

// absent is a claim that nothing here compares with.
func absent(what, paper, why string) Claim { return Claim{What: what, Paper: paper, Why: why} }

// over and under are bounds of all figures.
func over(limit float64) func([]float64) bool {
	return func(v []float64) bool { return slices.Min(v) > limit }
}

func under(limit float64) func([]float64) bool {
	return func(v []float64) bool { return slices.Max(v) < limit }
}

// Told is a claim beside what was measured.
type Told struct {
	What   string   `json:"what"`
	Paper  string   `json:"paper"`
	Values []Valued `json:"values,omitempty"`
	Holds  *bool    `json:"holds,omitempty"` // as in the paper; nil: it says no shape
	Why    string   `json:"why,omitempty"`   // there is no value
}

// Valued is a figure.
type Valued struct {
	By    string  `json:"by,omitempty"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// against holds a claim against rows.
func (c *Claim) against(rows []bench.Row) Told {
	t := Told{What: c.What, Paper: c.Paper, Why: c.Why}
	var values []float64
	for _, h := range c.Here {
		if v, ok := h.Of(rows); ok {
			t.Values = append(t.Values, Valued{h.By, v, h.Unit})
			values = append(values, v)
		}
	}
	switch {
	case c.Why != "" || len(rows) == 0:
	case len(values) < len(c.Here):
		t.Why = "not measured"
	case c.Holds != nil:
		holds := c.Holds(values)
		t.Holds = &holds
	}
	return t
}

func (v *Valued) text() string {
	text := bench.ValueText(v.Value) + " " + v.Unit
	if v.Unit == bench.Times {
		text = fmt.Sprintf("%.2f", v.Value)
	}
	if v.By != "" {
		text += " (" + v.By + ")"
	}
	return text
}

func (t *Told) here() string {
	var all []string
	for i := range t.Values {
		all = append(all, t.Values[i].text())
	}
	if t.Why != "" {
		all = append(all, t.Why)
	}
	return strings.Join(all, ", ")
}

func (t *Told) holds() string {
	switch {
	case t.Holds == nil:
		return ""
	case *t.Holds:
		return "yes"
	}
	return "no"
}

// verdict is the sentence about the shape.
func verdict(all []Told) string {
	var not []string
	some := false
	for i := range all {
		if all[i].Holds == nil {
			continue
		}
		some = true
		if !*all[i].Holds {
			not = append(not, all[i].What)
		}
	}
	switch {
	case !some:
		return ""
	case not == nil:
		return "So it came out here."
	}
	return "Here it came out otherwise in: " + strings.Join(not, "; ") + "."
}
