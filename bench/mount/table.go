package mount

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sluice-storage/sluice/bench"
)

// A row for each system would be hundreds of them: here the systems are columns.

// cells is a table before it is drawn: the first line is the head.
type cells struct {
	title string
	lines [][]string
}

// tables are those of the rows: what was measured, what it cost, and what a long run took.
func tables(rows []bench.Row) []cells {
	all := []cells{mainTable(rows),
		costTable(rows, "Processor seconds of all processes of the system + of the program", true),
		costTable(rows, "Peak memory of all processes of the system, MiB", false), longTable(rows)}
	return slices.DeleteFunc(all, func(c cells) bool { return len(c.lines) < 2 })
}

// WriteTable prints rows for people at a terminal.
func WriteTable(w io.Writer, rows []bench.Row) error {
	for i, table := range tables(rows) {
		if i > 0 {
			fmt.Fprintf(w, "\n%s\n", table.title)
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for k, line := range table.lines {
			text := strings.Join(line, "\t")
			if k == 0 {
				text = strings.ToUpper(text)
			}
			fmt.Fprintln(t, text)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Markdown is the same for docs/figures.
func Markdown(rows []bench.Row) string {
	var b strings.Builder
	for i, table := range tables(rows) {
		if i > 0 {
			fmt.Fprintf(&b, "\n%s:\n\n", table.title)
		}
		for k, line := range table.lines {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
			if k == 0 {
				b.WriteString(strings.Repeat("|---", len(line)) + "|\n")
			}
		}
	}
	return b.String()
}

// providers are those who have a row, in the order of Names.
func providers(rows []bench.Row) (names []string) {
	for _, name := range Names() {
		has := func(r bench.Row) bool { return r.Provider == name && !isLong(r.Case) }
		if slices.ContainsFunc(rows, has) {
			names = append(names, name)
		}
	}
	return names
}

// cases are those that have rows, in order; without the long ones.
func cases(rows []bench.Row) (names []string) {
	for i := range rows {
		if name := rows[i].Case; !isLong(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func mainTable(rows []bench.Row) cells {
	who := providers(rows)
	head := append([]string{"workload", "unit"}, who...)
	c := cells{lines: [][]string{append(head, "of the best peer", "of the ceiling")}}
	for _, name := range cases(rows) {
		line := []string{name, ""}
		var ours *bench.Row
		for _, by := range who {
			r := bench.Rows(rows).Find(name, by, "") // the first is what it is about
			if r == nil {
				line = append(line, "-")
				continue
			}
			line[1] = r.Unit
			line = append(line, fmt.Sprintf("%s (%s-%s)", bench.ValueText(r.Value), bench.ValueText(r.Low),
				bench.ValueText(r.High)))
			if by == Sluice {
				ours = r
			}
		}
		c.lines = append(c.lines, append(line, relation(ours)...))
	}
	return c
}

// relation is what a row is to the best peer and to the ceiling.
func relation(r *bench.Row) []string {
	text := func(ratio float64, whose string) string {
		if ratio == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f of %s", ratio, whose)
	}
	if r == nil {
		return []string{"-", "-"}
	}
	return []string{text(r.PeerRatio, r.Peer), text(r.Ratio, r.Ceiling)}
}

// costTable has the processor time of each workload, or the memory. A workload about files and
// about data has two lines.
func costTable(rows []bench.Row, title string, processor bool) cells {
	who := providers(rows)
	c := cells{title: title, lines: [][]string{append([]string{"workload", "unit"}, who...)}}
	units := []string{bench.PerThousand, bench.PerGiB}
	if !processor {
		units = []string{"MiB"}
	}
	for _, name := range cases(rows) {
		for _, unit := range units {
			line, found := []string{name, unit}, false
			for _, by := range who {
				text := costCell(rows, name, by, unit)
				found = found || text != "-"
				line = append(line, text)
			}
			if found {
				c.lines = append(c.lines, line)
			}
		}
	}
	return c
}

func costCell(rows []bench.Row, name, by, unit string) string {
	find := func(metric string) *bench.Row {
		for i := range rows {
			r := &rows[i]
			if r.Case == name && r.Provider == by && r.Metric == metric && r.Unit == unit {
				return r
			}
		}
		return nil
	}
	if m := find(bench.Memory); m != nil {
		return fmt.Sprintf("%.0f", m.Value)
	}
	system, reader := find(bench.SystemCPU), find(bench.ReaderCPU)
	if system == nil || reader == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f + %.2f", system.Value, reader.Value)
}

// longTable shows memory over time.
func longTable(rows []bench.Row) cells {
	c := cells{title: "Long runs, memory over time",
		lines: [][]string{{"workload", "at", "rate", "mount MiB", "servers MiB"}}}
	for i := 0; i+2 < len(rows); i++ {
		rate, mount, servers := &rows[i], &rows[i+1], &rows[i+2]
		if !isLong(rate.Case) || rate.Metric == bench.Memory {
			continue
		}
		at := fmt.Sprintf("%d", rate.Size)
		if rate.Metric == bench.Bandwidth {
			at = fmt.Sprintf("%.1f GB", float64(rate.Size)/1e9)
		}
		c.lines = append(c.lines, []string{rate.Case, at, bench.ValueText(rate.Value) + " " + rate.Unit,
			fmt.Sprintf("%.0f", mount.Value), fmt.Sprintf("%.0f", servers.Value)})
	}
	return c
}
