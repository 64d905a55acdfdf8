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
	Name     string      `json:"name"`
	Also     []string    `json:"also,omitempty"`
	Paper    string      `json:"paper"`
	Title    string      `json:"title"`
	Rows     []bench.Row `json:"rows,omitempty"`
	Claims   []Told      `json:"claims,omitempty"`
	Differs  string      `json:"differs,omitempty"`
	CannotBe string      `json:"cannot_be,omitempty"`
	Command  string      `json:"command,omitempty"`
	Plot     string      `json:"plot,omitempty"` // file name of its drawing
}

// Told is what a paper says beside what was measured.
type Told struct {
	What  string   `json:"what"`
	Paper string   `json:"paper"`
	Here  *float64 `json:"here,omitempty"` // nil: nothing that compares
	Unit  string   `json:"unit,omitempty"`
}

// Outcome holds rows against what the paper says.
func (e *Experiment) Outcome(rows []bench.Row, command string) Outcome {
	o := Outcome{Name: e.Name, Also: e.Also, Paper: Papers()[e.Letter()], Title: e.Title, Rows: rows,
		Differs: strings.TrimSpace(e.Differs), CannotBe: e.CannotBe, Command: command}
	for _, c := range e.Claims {
		t := Told{What: c.What, Paper: c.Paper, Unit: c.Unit}
		if c.Of != nil {
			if v, ok := c.Of(rows); ok {
				t.Here = &v
			}
		}
		o.Claims = append(o.Claims, t)
	}
	return o
}

func (t *Told) here() string {
	switch {
	case t.Here == nil:
		return ""
	case t.Unit == bench.Times:
		return fmt.Sprintf("%.2f", *t.Here)
	}
	return bench.ValueText(*t.Here) + " " + t.Unit
}

// Write prints an outcome for people at a terminal.
func (o *Outcome) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s\n  %s\n\n", o.heading(), o.Title, o.Paper)
	if len(o.Rows) > 0 {
		if err := bench.WriteTable(w, o.Rows); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if len(o.Claims) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "WHAT\tTHE PAPER\tHERE")
		for i := range o.Claims {
			c := &o.Claims[i]
			fmt.Fprintf(t, "%s\t%s\t%s\n", c.What, c.Paper, c.here())
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if o.CannotBe != "" {
		fmt.Fprintf(w, "\nIt cannot be run here. %s\n", o.CannotBe)
	}
	if o.Differs != "" {
		fmt.Fprintf(w, "\nWhat differs: %s\n", o.Differs)
	}
	return nil
}

func (o *Outcome) heading() string {
	return strings.Join(append([]string{o.Name}, o.Also...), ", ")
}

// WriteList prints a line for each experiment.
func WriteList(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range All() {
		how := "cannot be run here: see sluice bench paper " + e.Name
		if e.CannotBe == "" {
			how = "by bench " + e.Parts[0].Bench
			if e.Parts[0].Bench == OwnBench {
				how = "by the client library"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", e.Names(), e.Title, how)
	}
	return t.Flush()
}

// markdown is an outcome as a section of a page.
func (o *Outcome) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s: %s\n\n", o.heading(), o.Title)
	if o.CannotBe != "" {
		fmt.Fprintf(&b, "It cannot be run here. %s\n\n", o.CannotBe)
	}
	if len(o.Claims) > 0 {
		b.WriteString("| what | the paper | here |\n|---|---|---|\n")
		for i := range o.Claims {
			c := &o.Claims[i]
			fmt.Fprintf(&b, "| %s | %s | %s |\n", c.What, c.Paper, c.here())
		}
		b.WriteString("\n")
	}
	if o.Differs != "" {
		fmt.Fprintf(&b, "What differs: %s\n\n", o.Differs)
	}
	if o.Plot != "" {
		fmt.Fprintf(&b, "![%s](%s)\n\n", o.Title, o.Plot)
	}
	if len(o.Rows) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "`%s` on %s\n\n", o.Command, bench.Machine())
	b.WriteString("| case | by | size | under way | figure | low-high |\n|---|---|---|---|---|---|\n")
	for _, r := range o.Rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %s %s | %s-%s |\n", r.Case, r.Provider,
			bench.SizeText(r.Size), r.Depth, bench.ValueText(r.Value), r.Unit, bench.ValueText(r.Low),
			bench.ValueText(r.High))
	}
	b.WriteString("\n")
	return b.String()
}

// pageHead is what stands above the sections.
const pageHead = `# The papers' experiments

Each table and figure of the five papers that sluice comes from and that can be run on one host,
with what the paper reported beside what was measured here. This page is written by
` + "`sluice bench paper all --markdown FILE`" + `, a section alone by its name;
` + "`sluice bench paper ls`" + ` lists them. Figures are medians; of one host they say how ways
compare, not how fast a cluster is.

`

// Page puts outcomes into the page of all experiments: sections that were not run stay as they are
// in old.
func Page(old string, outcomes []Outcome) string {
	sections := map[string]string{}
	for _, part := range strings.Split(old, "\n## ")[1:] {
		name, _, _ := strings.Cut(part, ":")
		first, _, _ := strings.Cut(name, ",")
		sections[first] = "## " + strings.TrimRight(part, "\n") + "\n\n"
	}
	for i := range outcomes {
		sections[outcomes[i].Name] = outcomes[i].markdown()
	}
	var b strings.Builder
	b.WriteString(pageHead)
	for _, e := range All() {
		b.WriteString(sections[e.Name])
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
