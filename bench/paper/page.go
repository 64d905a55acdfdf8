package paper

import (
	"fmt"
	"strings"

	"github.com/sluice-storage/sluice/bench"
)

// tableMax is how many lines of figures a section has: where there are more, the drawing shows
// them, and the file with all rows has them.
const tableMax = 8

// markdown is an outcome as a section of a page.
func (o *Outcome) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s: %s\n\n", o.heading(), o.Title)
	if o.Says != "" {
		b.WriteString("The paper found: " + o.Says)
		if o.Verdict != "" {
			fmt.Fprintf(&b, " **%s**", o.Verdict)
		}
		b.WriteString("\n\n")
	}
	if o.CannotBe != "" {
		fmt.Fprintf(&b, "It cannot be run here. %s\n\n", o.CannotBe)
	}
	if len(o.Claims) > 0 {
		b.WriteString("| what | the paper | here | as in the paper |\n|---|---|---|---|\n")
		for i := range o.Claims {
			c := &o.Claims[i]
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.What, c.Paper, c.here(), c.holds())
		}
		b.WriteString("\n")
	}
	if o.Plot != "" {
		fmt.Fprintf(&b, "![%s](%s)\n\n", o.Title, o.Plot)
	}
	if lines := o.lines(); o.Plot == "" || lines <= tableMax {
		for i := range o.Graphs {
			writeTable(&b, &o.Graphs[i])
		}
	}
	if o.Differs != "" {
		fmt.Fprintf(&b, "What differs: %s\n\n", o.Differs)
	}
	if len(o.LeftOut) > 0 {
		fmt.Fprintf(&b, "Not measured: %s.\n\n", strings.Join(o.LeftOut, "; "))
	}
	if o.Machine != "" {
		fmt.Fprintf(&b, "`%s` on %s%s\n\n", o.Command, o.Machine, o.rows())
	}
	return b.String()
}

func (o *Outcome) rows() string {
	if o.Data == "" {
		return ""
	}
	return fmt.Sprintf("; [all rows](%s)", o.Data)
}

func (o *Outcome) lines() int {
	n := 0
	for i := range o.Graphs {
		n += len(o.Graphs[i].Ticks)
	}
	return n
}

func writeTable(b *strings.Builder, g *bench.Chart) {
	lines := table(g)
	lines[0][0] = strings.TrimPrefix(g.X+": ", ": ") + g.Title + ", " + g.Unit
	for i, line := range lines {
		b.WriteString("| " + strings.Join(line, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(line)) + "|\n")
		}
	}
	b.WriteString("\n")
}

// pageHead is what stands above the sections.
const pageHead = `# The papers' experiments

Each table and figure of the five papers that sluice comes from and that can be run on one host,
with what the paper reported beside what was measured here, and whether the shape came out: who
wins, and where that changes. Hardware differs by twenty years: single figures say little. This
page is written by ` + "`sluice bench paper all --markdown FILE`" + `, a section alone by its
name; ` + "`sluice bench paper ls`" + ` lists them. Figures are medians of several rounds; of one
host they say how ways compare, not how fast a cluster is.

`

// Page puts outcomes into the page of all experiments: sections that were not run stay as they are
// in old, also those that this host has no device for.
func Page(old string, outcomes []Outcome) string {
	sections := map[string]string{}
	for _, part := range strings.Split(old, "\n## ")[1:] {
		name, _, _ := strings.Cut(part, ":")
		first, _, _ := strings.Cut(name, ",")
		sections[first] = "## " + strings.TrimRight(part, "\n") + "\n\n"
	}
	for i := range outcomes {
		o := &outcomes[i]
		if o.CannotBe == NoDevice && sections[o.Name] != "" {
			continue
		}
		sections[o.Name] = o.markdown()
	}
	var b strings.Builder
	b.WriteString(pageHead)
	for _, e := range All() {
		b.WriteString(sections[e.Name])
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
