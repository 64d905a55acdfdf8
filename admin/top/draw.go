package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/admin"
)

// Page is which lists are shown.
type Page uint8

// The pages. All shows something of each list.
const (
	All Page = iota
	Ops
	Clients
	Files
	SlowOnes
	Pages
)

func (p Page) String() string {
	return [...]string{"all", "operations", "clients", "files", "slow requests"}[p]
}

// Screen is how a view is drawn.
type Screen struct {
	Width  int // columns; 0: as many as there are
	Height int // lines; 0: as many as there are
	Page   Page
	Order  Order
	Color  bool   // escape sequences for bold and red
	Help   bool   // what keys there are, in place of the lists
	Note   string // in the last line of the head, as that it is paused
	Rows   int    // of each list at most; 0: any number
}

// section is a table.
type section struct {
	columns []column
	rows    [][]string
	bad     []bool // rows that are of concern
}

// Draw makes lines of a view, none of them longer than the screen is wide, and no more than it is
// high.
func Draw(v *View, s Screen) string {
	v.Sort(s.Order)
	lines := s.head(v)
	if s.Help {
		lines = append(lines, helpLines...)
	} else {
		lines = append(lines, s.tables(v, s.Height-len(lines))...)
	}
	if s.Height > 0 && len(lines) > s.Height {
		lines = lines[:s.Height]
	}
	for i := range lines {
		if !strings.Contains(lines[i], "\x1b") {
			lines[i] = cut(lines[i], s.Width)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

var helpLines = []string{
	"",
	"  q        quit                          h ?      this help, and back",
	"  1 a      all lists                     2 o      operations",
	"  3 c      clients, programs             4 f      files, by inode number",
	"  5 s      slow requests                 tab      the next of these",
	"  r        sort by requests a second     b        by bytes a second",
	"  l        by latency                    n        by name",
	"  space    pause, and go on              + -      a shorter, a longer interval",
	"",
	"  P50 and P99 are of the requests of the last interval, as the process saw them.",
	"  BUSY is how many requests of a kind were under way on average.",
	"  Slow requests are the slowest of the last minute; those still under way come first.",
}

// head is what every page begins with.
func (s *Screen) head(v *View) []string {
	t := &v.Totals
	up := 0
	for _, p := range v.Processes {
		up += flag(p.Up)
	}
	title := fmt.Sprintf("sluice top  %s  %d of %d processes  %s", v.Time.Format("15:04:05"),
		up, len(v.Processes), clean(v.Cluster))
	sums := fmt.Sprintf("%d clients  %d open files  %s requests/s  read %s/s  written %s/s  "+
		"failed %s/s", t.Clients, t.Open, zero(rate(t.Requests)), zero(bytes(t.Read)),
		zero(bytes(t.Written)), zero(rate(t.Failed)))
	note := fmt.Sprintf("%s, by %s, over %.1fs", s.Page, s.Order, v.Interval)
	if s.Note != "" {
		note += "  " + s.Note
	}
	return []string{s.bold(cut(title, s.Width)), cut(sums, s.Width), cut(note, s.Width)}
}

// zero is how a number that is none reads in a sentence.
func zero(text string) string { return strings.Replace(text, "-", "0", 1) }

func (s *Screen) bold(text string) string {
	if s.Color {
		return "\x1b[1m" + text + "\x1b[0m"
	}
	return text
}

func (s *Screen) red(text string) string {
	if s.Color {
		return "\x1b[31m" + text + "\x1b[0m"
	}
	return text
}

// tables draws the lists of a page in so many lines, or any number if there is no height.
func (s *Screen) tables(v *View, height int) (lines []string) {
	var list []section
	for _, one := range []struct {
		on   bool
		make func(*View) section
	}{
		{true, processes}, {s.Page == All || s.Page == Ops, operations},
		{s.Page == All || s.Page == Clients, clients}, {s.Page == All || s.Page == SlowOnes, slowOnes},
		{s.Page == All || s.Page == Clients, programs}, {s.Page == All || s.Page == Files, files},
	} {
		if one.on {
			if t := one.make(v); len(t.rows) > 0 {
				list = append(list, t)
			}
		}
	}
	rows := make([]int, len(list))
	for i := range list {
		rows[i] = len(list[i].rows)
		if s.Rows > 0 {
			rows[i] = min(rows[i], s.Rows)
		}
	}
	if s.Height > 0 {
		rows = share(rows, height)
	}
	for i := range list {
		if rows[i] > 0 {
			lines = append(lines, s.draw(&list[i], rows[i])...)
		}
	}
	return lines
}

// share divides lines among tables, each of which needs two more for an empty line and its titles.
// The first one, of the processes, gets up to a third. Of the others those that need little get it;
// what is left goes to the rest in equal parts.
func share(want []int, height int) []int {
	got := make([]int, len(want))
	left := height
	open := 0
	for i := range want {
		rows := 1
		if i == 0 {
			rows = max(1, min(want[i], height/3))
		}
		if left >= rows+2 {
			left -= rows + 2
			got[i], open = rows, open+1
		}
	}
	for left > 0 && open > 0 {
		open = 0
		for i := range got {
			if got[i] > 0 && got[i] < want[i] && left > 0 {
				got[i]++
				left--
				open++
			}
		}
	}
	return got
}

// draw makes the lines of a table.
func (s *Screen) draw(t *section, rows int) []string {
	title, lines := lay(t.columns, t.rows[:rows], s.Width)
	out := []string{"", s.bold(title)}
	for i, l := range lines {
		if t.bad[i] {
			l = s.red(l)
		}
		out = append(out, l)
	}
	return out
}

func (t *section) add(bad bool, cells ...string) {
	t.rows, t.bad = append(t.rows, cells), append(t.bad, bad)
}

func processes(v *View) section {
	t := section{columns: []column{{title: "PROCESS", left: true}, {title: "PID", drop: 8},
		{title: "UP", drop: 5}, {title: "CPU", drop: 4}, {title: "MEMORY", drop: 3},
		{title: "OPEN", drop: 7}, {title: "LONG", drop: 6}, {title: "REQ/S"}, {title: "READ/S"},
		{title: "WRITTEN/S"}, {title: "FAILED/S", drop: 2}, {title: "P50", drop: 1}, {title: "P99"},
		{title: "", left: true, drop: 9, shrinks: true}}}
	for _, p := range v.Processes {
		if !p.Up {
			t.add(true, clean(p.Name), "-", "-", "-", "-", "-", "-", "down", "-", "-", "-", "-", "-",
				clean(p.Problem))
			continue
		}
		note := ""
		if p.Untold > 0 {
			note = fmt.Sprintf("%d names not told", p.Untold)
		}
		t.add(p.Running > 0, clean(p.Name), fmt.Sprint(p.PID), upFor(p.Uptime),
			fmt.Sprintf("%.0f%%", p.CPU*100), bytes(float64(p.Memory)), count(p.Open), count(p.Running),
			rate(p.Requests), bytes(p.Read), bytes(p.Written), rate(p.Failed), latency(p.P50),
			latency(p.P99), note)
	}
	return t
}

// upFor is for how long a process runs, without fractions of a second.
func upFor(secs float64) string {
	return admin.Age((time.Duration(secs) * time.Second).Round(time.Second))
}

func operations(v *View) section {
	t := section{columns: []column{{title: "OPERATION", left: true, shrinks: true}, {title: "REQ/S"},
		{title: "FAILED/S", drop: 2}, {title: "BUSY", drop: 3}, {title: "MEAN", drop: 1},
		{title: "P50"}, {title: "P99"}}}
	for _, op := range v.Ops {
		mean, p50, p99 := latency(op.Mean), latency(op.P50), latency(op.P99)
		if op.Waits {
			mean, p50, p99 = "waits", "-", "-"
		}
		t.add(false, clean(op.Kind+" "+op.Op), rate(op.Requests), rate(op.Failed),
			fmt.Sprintf("%.1f", op.Busy), mean, p50, p99)
	}
	return t
}

func clients(v *View) section {
	t := section{columns: []column{{title: "CLIENT", left: true, shrinks: true},
		{title: "OPEN", drop: 1}, {title: "REQ/S"}, {title: "READ/S"}, {title: "WRITTEN/S"}}}
	for _, c := range v.Clients {
		t.add(false, clean(c.Name), count(c.Open), rate(c.Requests), bytes(c.Read), bytes(c.Written))
	}
	return t
}

func programs(v *View) section {
	t := section{columns: []column{{title: "PROGRAM", left: true, shrinks: true},
		{title: "PID", drop: 1}, {title: "MOUNT", left: true, drop: 2}, {title: "REQ/S"},
		{title: "READ/S"}, {title: "WRITTEN/S"}}}
	for _, c := range v.Programs {
		name := c.Name
		if name == "" {
			name = "(ended)"
		}
		t.add(false, clean(name), fmt.Sprint(c.ID), clean(c.Mount), rate(c.Requests), bytes(c.Read),
			bytes(c.Written))
	}
	return t
}

func files(v *View) section {
	t := section{columns: []column{{title: "INODE", left: true}, {title: "REQ/S"},
		{title: "READ/S"}, {title: "WRITTEN/S"}}}
	for _, f := range v.Files {
		name := fmt.Sprint(f.Inode)
		if f.Inode == 0 {
			name = "others"
		}
		t.add(false, name, rate(f.Requests), bytes(f.Read), bytes(f.Written))
	}
	return t
}

func slowOnes(v *View) section {
	t := section{columns: []column{{title: "SLOW"}, {title: "AGO", drop: 1},
		{title: "PROCESS", left: true}, {title: "OPERATION", left: true}, {title: "BYTES", drop: 5},
		{title: "INODE", drop: 4}, {title: "CLIENT", left: true, drop: 3},
		{title: "WAITED", left: true, drop: 2}, {title: "NAME", left: true, drop: 6, shrinks: true}}}
	for _, s := range v.Slow {
		ago := fmt.Sprintf("%.0fs", s.Ago)
		if s.Running {
			ago = "now"
		}
		op := s.Op
		if s.Failed {
			op += " !"
		}
		inode := "-"
		if s.Inode != 0 {
			inode = fmt.Sprint(s.Inode)
		}
		t.add(s.Running, latency(s.Took), ago, clean(s.Process), clean(op), bytes(float64(s.Bytes)),
			inode, clean(s.Client), clean(s.Where), clean(s.Name))
	}
	return t
}
