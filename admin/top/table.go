package top

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-storage/sluice/admin"
)

// column of a table. Where a terminal is narrow those with the highest drop go first; a column
// without one is always there. One column may shrink.
type column struct {
	title   string
	left    bool // aligned; numbers are not
	drop    int  // 0: never
	shrinks bool
}

// shrinkMin is how narrow a column becomes before others go.
const shrinkMin = 10

const gap = 2 // between columns

// lay draws rows below a line of titles, in a width; 0 is any. No line is longer.
func lay(columns []column, rows [][]string, width int) (title string, lines []string) {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = utf8.RuneCountInString(c.title)
		for _, r := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i]))
		}
	}
	shown := fit(columns, widths, width)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	title = line(columns, shown, widths, titles, width)
	for _, r := range rows {
		lines = append(lines, line(columns, shown, widths, r, width))
	}
	return title, lines
}

// fit chooses the columns that there is room for, and shrinks the one that may.
func fit(columns []column, widths []int, width int) (shown []bool) {
	shown = make([]bool, len(columns))
	for i := range shown {
		shown[i] = true
	}
	if width <= 0 {
		return shown
	}
	for {
		total, shrinks, worst := -gap, -1, -1
		for i, c := range columns {
			if !shown[i] {
				continue
			}
			total += widths[i] + gap
			if c.shrinks {
				shrinks = i
			}
			if c.drop > 0 && (worst < 0 || c.drop > columns[worst].drop) {
				worst = i
			}
		}
		over := total - width
		switch {
		case over <= 0:
			return shown
		case shrinks >= 0 && widths[shrinks]-over >= shrinkMin:
			widths[shrinks] -= over
			return shown
		case worst < 0:
			return shown // the lines are cut
		}
		shown[worst] = false
	}
}

func line(columns []column, shown []bool, widths []int, cells []string, width int) string {
	var b strings.Builder
	first := true
	for i, c := range columns {
		if !shown[i] {
			continue
		}
		if !first {
			b.WriteString(strings.Repeat(" ", gap))
		}
		first = false
		cell := cut(cells[i], widths[i])
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if c.left {
			b.WriteString(cell + pad)
		} else {
			b.WriteString(pad + cell)
		}
	}
	return cut(strings.TrimRight(b.String(), " "), width)
}

// cut shortens a text to a width, with a sign that there was more; 0 is any.
func cut(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	r := []rune(text)
	return string(r[:width-1]) + "~"
}

// clean makes a name fit for a terminal: what would move the cursor, or hide, becomes a dot.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, name)
}

// Short is a duration for people, in at most six characters or so: 850us, 1.20ms, 3.4s, 2m10s.
func Short(d time.Duration) string {
	switch {
	case d < 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%dus", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2fms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0fms", d.Seconds()*1e3)
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return admin.Age(d)
}

// latency is one of a view, which has milliseconds; "-" for none.
func latency(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return Short(time.Duration(ms * 1e6))
}

// rate is a number of requests a second.
func rate(v float64) string {
	switch {
	case v == 0:
		return "-"
	case v < 9.95:
		return fmt.Sprintf("%.1f", v)
	case v < 99_999.5:
		return fmt.Sprintf("%.0f", v)
	case v < 9_999_500:
		return fmt.Sprintf("%.0fk", v/1e3)
	}
	return fmt.Sprintf("%.0fM", v/1e6)
}

// bytes is a number of bytes, or bytes a second; "-" for none.
func bytes(v float64) string {
	if v < 0.5 {
		return "-"
	}
	return strings.Replace(strings.TrimSuffix(admin.Bytes(int64(v)), "iB"), " ", "", 1)
}

func count(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
