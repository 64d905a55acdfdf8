package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteJSON prints one array with a row a line.
func WriteJSON(w io.Writer, rows []Row) error {
	var b strings.Builder
	b.WriteString("[")
	for i, r := range rows {
		if i > 0 {
			b.WriteString(",")
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		b.WriteString("\n  ")
		b.Write(text)
	}
	b.WriteString("\n]\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteTable prints rows for people at a terminal.
func WriteTable(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	costs := ""
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Cost != Cost{} }) {
		costs = "\tPROCESSOR, COPIES"
	}
	fmt.Fprintln(t, "CASE\tPROVIDER\tSIZE\tDEPTH\tMETRIC\tMEDIAN\tLOW-HIGH\tUNIT\tRATIO\tCEILING"+
		costs)
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s", r.Case, r.Provider,
			SizeText(r.Size), r.Depth, r.Metric, ValueText(r.Value), spreadText(r), r.Unit,
			ratioText(r), ceilingText(r))
		if costs != "" {
			fmt.Fprintf(t, "\t%s", costText(r))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// costText is what moving data costs: the processor seconds for each GiB of this process and of the
// other one, where there is enough data to tell; the copies of a byte that were counted, and those
// of the provider.
func costText(r Row) string {
	if r.LocalCPU == nil || r.RemoteCPU == nil || r.Copies == nil {
		return ""
	}
	var parts []string
	if r.Size >= 4<<10 {
		parts = append(parts, fmt.Sprintf("%.2f+%.2f s/GiB", *r.LocalCPU, *r.RemoteCPU))
	}
	copies := fmt.Sprintf("%.1f", *r.Copies)
	if r.ProviderCopies != nil {
		copies += fmt.Sprintf("+%.0f", *r.ProviderCopies)
	}
	return strings.Join(append(parts, copies+" copies"), ", ")
}

func ratioText(r Row) string {
	if r.Ceiling == "" || r.IsCeiling() {
		return ""
	}
	return fmt.Sprintf("%.2f", r.Ratio)
}

func ceilingText(r Row) string {
	if r.IsCeiling() {
		return "is the ceiling"
	}
	return r.Ceiling
}

func spreadText(r Row) string { return ValueText(r.Low) + "-" + ValueText(r.High) }

// Sizes.
const (
	KiB = 1 << 10
	MiB = 1 << 20
)

// SizeName is a size as the names of cases have it: 8, 4k, 1m.
func SizeName(n int) string {
	switch {
	case n >= MiB && n%MiB == 0:
		return fmt.Sprintf("%dm", n/MiB)
	case n >= KiB && n%KiB == 0:
		return fmt.Sprintf("%dk", n/KiB)
	}
	return fmt.Sprint(n)
}

// SizeText is a size for people: 8 B, 4 KiB, 1 MiB.
func SizeText(n int64) string {
	switch {
	case n >= MiB && n%(MiB) == 0:
		return fmt.Sprintf("%d MiB", n/MiB)
	case n >= KiB && n%(KiB) == 0:
		return fmt.Sprintf("%d KiB", n/KiB)
	}
	return fmt.Sprintf("%d B", n)
}

// ValueText keeps three digits that mean something.
func ValueText(v float64) string {
	switch {
	case v < 1 && v > -1:
		return fmt.Sprintf("%.3f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// Tail is the end of what a program has printed, which says why it failed.
func Tail(text []byte) []byte { return text[max(0, len(text)-500):] }
