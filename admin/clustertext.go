package admin

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// Columns is how wide a report for people is at most.
const Columns = 100

// clientsShown is how many clients are printed; JSON has all of them.
const clientsShown = 20

func (r *Report) hosts(b *strings.Builder, now time.Time) {
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "HOST\tSTATE\tROLES\tVERSION\tSTART\tHEARD\tCERTIFICATE")
	for _, h := range r.Hosts {
		if h.State == stateGone {
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", clip(h.Name, 16), orDash(h.State), orDash(h.Roles),
			orDash(clip(h.Version, 14)), h.Start, ago(h.LastSeen, now), Days(h.Expires, now))
	}
	_ = t.Flush() // a Builder takes everything
}

func (r *Report) clients(b *strings.Builder, now time.Time) {
	b.WriteString("\n")
	list := slices.Clone(r.Clients)
	slices.SortStableFunc(list, func(x, y Client) int { return y.Open - x.Open })
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CLIENT\tOF\tMOUNT\tVERSION\tOPEN\tFOR\tHEARD")
	for _, c := range list[:min(len(list), clientsShown)] {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", clip(shortName(c.Name), 24),
			orDash(clip(c.Peer, 16)), orDash(clip(c.Mount, 20)), orDash(clip(c.Version, 14)), c.Open,
			ago(c.Since, now), ago(c.LastSeen, now))
	}
	_ = t.Flush()
	if n := len(list) - clientsShown; n > 0 {
		fmt.Fprintf(b, "and %d more: --json has all\n", n)
	}
}

// shortName is a client's name without what only tells it from others of the same process.
func shortName(name string) string {
	short, _, _ := strings.Cut(name, " [")
	return short
}

// versions tells who runs what, where that is not the same everywhere.
func (r *Report) versions(b *strings.Builder) {
	list := r.Versions()
	if len(list) == 1 {
		fmt.Fprintf(b, "%-7s %s\n", "version", list[0].Version)
	}
	if len(list) < 2 {
		return
	}
	b.WriteString("! versions differ: install one version of sluice everywhere\n")
	for i := range list {
		fmt.Fprintf(b, "  %s\n", list[i].text())
	}
}

// Days tells how long a certificate lasts.
func Days(end, now time.Time) string {
	switch {
	case end.IsZero():
		return "-"
	case !end.After(now):
		return "ended " + end.Local().Format(time.DateOnly)
	}
	if n := int(end.Sub(now).Hours() / 24); n != 1 {
		return fmt.Sprintf("%d days left", n)
	}
	return "1 day left"
}

func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return Age(now.Sub(at))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// clip shortens a cell.
func clip(text string, max int) string {
	if utf8.RuneCountInString(text) <= max {
		return text
	}
	return string([]rune(text)[:max-1]) + "…"
}

// fit makes a text Columns wide. Lines of tables are cut; sentences go on in the next line.
func fit(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		for first := true; utf8.RuneCountInString(line) > Columns; first = false {
			if first && strings.Contains(line, "   ") { // of a table
				line = clip(line, Columns)
				break
			}
			at := strings.LastIndex(string([]rune(line)[:Columns+1]), " ")
			if at <= len("    ") {
				break // a path, which people want to copy
			}
			out, line = append(out, line[:at]), "    "+line[at+1:]
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n") + "\n"
}
