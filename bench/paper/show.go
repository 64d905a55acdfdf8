package paper

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/sluice-storage/sluice/bench"
)

// Outcome is an experiment that was run, or that cannot be.
type Outcome struct {
	Name     string        `json:"name"`
	Also     []string      `json:"also,omitempty"`
	Paper    string        `json:"paper"`
	Title    string        `json:"title"`
	Says     string        `json:"says,omitempty"`    // what the paper found
	Verdict  string        `json:"verdict,omitempty"` // whether it came out here, too
	Claims   []Told        `json:"claims,omitempty"`
	Graphs   []bench.Chart `json:"graphs,omitempty"`
	Differs  string        `json:"differs,omitempty"`
	CannotBe string        `json:"cannot_be,omitempty"`
	Command  string        `json:"command,omitempty"`
	Machine  string        `json:"machine,omitempty"`
	LeftOut  []string      `json:"left_out,omitempty"` // what was not measured, and why
	Plot     string        `json:"plot,omitempty"`     // file name of its drawing
	Data     string        `json:"data,omitempty"`     // file name of this, with all rows
	Rows     []bench.Row   `json:"rows,omitempty"`
}

// Outcome holds rows against what the paper says.
func (e *Experiment) Outcome(rows []bench.Row, command string) Outcome {
	o := Outcome{Name: e.Name, Also: e.Also, Paper: Papers()[e.Letter()], Title: e.Title, Rows: rows,
		Says: e.Says, Differs: strings.TrimSpace(e.Differs), CannotBe: e.CannotBe, Command: command}
	for i := range e.Claims {
		o.Claims = append(o.Claims, e.Claims[i].against(rows))
	}
	o.Verdict = verdict(o.Claims)
	if len(rows) == 0 {
		return o
	}
	o.Machine = bench.Machine()
	for i := range e.Graphs {
		c, missing := e.Graphs[i].chart(rows)
		o.Graphs = append(o.Graphs, c)
		o.LeftOut = append(o.LeftOut, missing...)
	}
	return o
}

// Draw is the outcome as an SVG file.
func (o *Outcome) Draw() []byte {
	return bench.PlotCharts(bench.About{Title: o.heading() + ": " + o.Title, Machine: o.Machine,
		Command: o.Command}, o.Graphs)
}

// Write prints an outcome for people at a terminal.
func (o *Outcome) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s\n  %s\n", o.heading(), o.Title, o.Paper)
	for i := range o.Graphs {
		g := &o.Graphs[i]
		fmt.Fprintf(w, "\n%s, %s\n", g.Title, g.Unit)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, line := range table(g) {
			fmt.Fprintln(t, strings.Join(line, "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(o.Claims) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "\nWHAT\tTHE PAPER\tHERE\tAS IN THE PAPER")
		for i := range o.Claims {
			c := &o.Claims[i]
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.What, c.Paper, c.here(), c.holds())
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, text := range []string{o.found(), label("It cannot be run here. ", o.CannotBe),
		label("What differs: ", o.Differs), label("Not measured: ", strings.Join(o.LeftOut, "; "))} {
		if text != "" {
			fmt.Fprintf(w, "\n%s\n", text)
		}
	}
	return nil
}

// found is what the paper found, and if it did so here.
func (o *Outcome) found() string {
	return strings.TrimSpace(label("The paper found: ", o.Says) + " " + o.Verdict)
}

func label(what, text string) string {
	if text == "" {
		return ""
	}
	return what + text
}

func (o *Outcome) heading() string {
	return strings.Join(append([]string{o.Name}, o.Also...), ", ")
}

// table is a graph in lines: a tick each.
func table(g *bench.Chart) [][]string {
	first := []string{g.X}
	for _, l := range g.Lines {
		first = append(first, l.Name)
	}
	all := [][]string{first}
	for i, tick := range g.Ticks {
		line := []string{tick}
		for _, l := range g.Lines {
			text := "-"
			if l.At[i] != nil {
				text = bench.ValueText(l.At[i].Value)
			}
			line = append(line, text)
		}
		all = append(all, line)
	}
	return all
}

// WriteList prints a line for each experiment.
func WriteList(w io.Writer, all []Experiment) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range all {
		how := "cannot be run here: see sluice bench paper " + e.Name
		if e.CannotBe == "" {
			how = "by bench " + e.Parts[0].Bench
			switch e.Parts[0].Bench {
			case OwnBench:
				how = "by the client library"
			case LocalBench:
				how = "by this host's own storage"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", e.Names(), e.Title, how)
	}
	return t.Flush()
}
