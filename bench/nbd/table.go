package nbd

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sluice-storage/sluice/bench"
)

// cells is a table before it is drawn: the first line is the head. A row for each server would be
// hundreds of them: the servers are columns.
type cells struct {
	title string
	lines [][]string
}

// tables are three of each scene: what was measured, what it cost, and where the time went.
func tables(rows []bench.Row) (all []cells) {
	for _, scene := range []string{SceneTmpfs, SceneDisk, SceneMemory, SceneVolume, SceneStreams} {
		var part bench.Rows
		for _, r := range rows {
			if strings.HasPrefix(r.Case, scene+"-") {
				part = append(part, r)
			}
		}
		if part != nil {
			all = append(all, mainTable(scene, part), costTable(scene, part), stateTable(scene, part))
		}
	}
	return slices.DeleteFunc(all, func(c cells) bool { return len(c.lines) < 2 })
}

// WriteTable prints rows for people at a terminal.
func WriteTable(w io.Writer, rows []bench.Row) error {
	for i, table := range tables(rows) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, table.title)
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
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s:\n\n", table.title)
		for k, line := range table.lines {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
			if k == 0 {
				b.WriteString(strings.Repeat("|---", len(line)) + "|\n")
			}
		}
	}
	return b.String()
}

// unique are the values of rows, in order.
func unique(rows bench.Rows, of func(*bench.Row) string) (names []string) {
	for i := range rows {
		if name := of(&rows[i]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func casesOf(rows bench.Rows) []string {
	return unique(rows, func(r *bench.Row) string { return r.Case })
}

func whoOf(rows bench.Rows) []string {
	return unique(rows, func(r *bench.Row) string { return r.Provider })
}

func mainTable(scene string, rows bench.Rows) cells {
	who := whoOf(rows)
	head := append([]string{"case", "unit"}, who...)
	c := cells{title: "Scene " + scene,
		lines: [][]string{append(head, "of the best peer", "of the ceiling")}}
	for _, name := range casesOf(rows) {
		line := []string{name, ""}
		for _, by := range who {
			r := rows.Find(name, by, "") // the first is what it is about
			if r == nil {
				line = append(line, "-")
				continue
			}
			line[1] = r.Unit
			line = append(line, fmt.Sprintf("%s (%s-%s)", bench.ValueText(r.Value), bench.ValueText(r.Low),
				bench.ValueText(r.High)))
		}
		// The first is ours, in the mode that an export has by itself.
		c.lines = append(c.lines, append(line, relation(rows.Find(name, who[0], ""))...))
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

// costTable has the processor time of each column: of the server's processes and of the client.
func costTable(scene string, rows bench.Rows) cells {
	who := whoOf(rows)
	c := cells{
		title: "Scene " + scene + ", processor seconds a GiB: all processes of the server + fio",
		lines: [][]string{append([]string{"case"}, who...)}}
	for _, name := range casesOf(rows) {
		line := []string{name}
		for _, by := range who {
			server, client := rows.Find(name, by, bench.SystemCPU), rows.Find(name, by, bench.ReaderCPU)
			if server == nil || client == nil {
				line = append(line, "-")
				continue
			}
			line = append(line, fmt.Sprintf("%.2f + %.2f", server.Value, client.Value))
		}
		c.lines = append(c.lines, line)
	}
	return c
}

// stateTable is where the time of a request goes, of the servers who tell.
func stateTable(scene string, rows bench.Rows) cells {
	var who []string
	for _, by := range whoOf(rows) {
		told := func(r bench.Row) bool {
			return r.Provider == by && strings.HasPrefix(r.Metric, bench.StateTime)
		}
		if slices.ContainsFunc(rows, told) {
			who = append(who, by)
		}
	}
	c := cells{title: "Scene " + scene + ", microseconds of a request: " +
		strings.Join(States(), " + "), lines: [][]string{append([]string{"case"}, who...)}}
	for _, name := range casesOf(rows) {
		line, found := []string{name}, false
		for _, by := range who {
			var parts []string
			for _, s := range States() {
				if r := rows.Find(name, by, bench.StateTime+s); r != nil {
					parts = append(parts, bench.ValueText(r.Value))
				}
			}
			found = found || parts != nil
			line = append(line, cmp.Or(strings.Join(parts, " + "), "-"))
		}
		if found {
			c.lines = append(c.lines, line)
		}
	}
	return c
}
