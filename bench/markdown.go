package bench

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/sluice-storage/sluice/errs"
)

// The table that Markdown makes stands between these lines. What is around them is people's.
const (
	tableBegin = "<!-- figures: made by a program, do not edit -->\n"
	tableEnd   = "<!-- figures end -->\n"
)

// Markdown puts the rows as a table into a Markdown text: in place of the one that it made before,
// or, if old is empty, into a new text. A text without such a place is left alone: errs.Exists.
func Markdown(about About, rows []Row, old []byte) ([]byte, error) {
	var t bytes.Buffer
	markHead(&t, about)
	costs := slices.ContainsFunc(rows, func(r Row) bool { return r.Cost != Cost{} })
	t.WriteString("| case | who | size | depth | median (lowest-highest) | of the ceiling |")
	if costs {
		t.WriteString(" processor, copies |")
	}
	t.WriteString("\n|---|---|---|---|---|---|")
	if costs {
		t.WriteString("---|")
	}
	t.WriteString("\n")
	for _, r := range rows {
		ratio := "is the ceiling"
		switch {
		case r.Ceiling == "":
			ratio = ""
		case !r.IsCeiling():
			ratio = fmt.Sprintf("%.2f of %s", r.Ratio, r.Ceiling)
		}
		fmt.Fprintf(&t, "| %s | %s | %s | %d | %s %s (%s) | %s |", r.Case, r.Provider,
			SizeText(r.Size), r.Depth, ValueText(r.Value), metricUnit(r), spreadText(r), ratio)
		if costs {
			fmt.Fprintf(&t, " %s |", costText(r))
		}
		t.WriteString("\n")
	}
	return embed(about, t.Bytes(), old)
}

// MarkdownOf is Markdown for a bench with tables of its own: what stands under the figures.
func MarkdownOf(about About, tables string, old []byte) ([]byte, error) {
	var t bytes.Buffer
	markHead(&t, about)
	t.WriteString(tables)
	return embed(about, t.Bytes(), old)
}

// markHead says what was run, and what is promised.
func markHead(t *bytes.Buffer, about About) {
	t.WriteString(tableBegin)
	fmt.Fprintf(t, "`%s` on %s; medians with the lowest and highest round in brackets.\n\n",
		about.Command, about.Machine)
	markFigures(t, about.Figures)
}

// embed puts what was made into a text.
func embed(about About, made, old []byte) ([]byte, error) {
	made = append(made, tableEnd...)
	if len(old) == 0 {
		return append([]byte("# "+about.Title+"\n\n"), made...), nil
	}
	begin := bytes.Index(old, []byte(tableBegin))
	end := bytes.Index(old, []byte(tableEnd))
	if begin < 0 || end < begin {
		return nil, errs.Newf(errs.Exists, "bench", "",
			"there is a text without a place for a table, which is between the lines %q and %q",
			tableBegin, tableEnd)
	}
	end += len(tableEnd)
	return bytes.Join([][]byte{old[:begin], made, old[end:]}, nil), nil
}

// markFigures puts what is promised above the table.
func markFigures(t *bytes.Buffer, all []Figure) {
	if len(all) == 0 {
		return
	}
	t.WriteString("| promised | limit | measured | |\n|---|---|---|---|\n")
	for _, f := range all {
		fmt.Fprintf(t, "| %s | %s | %s | %s |\n", f.Name, f.limitText(), f.valueText(), f.metText())
	}
	t.WriteString("\n")
}

// metricUnit is the unit, with more where it does not say everything.
func metricUnit(r Row) string {
	switch r.Metric {
	case CPU:
		return r.Unit + " processor, both sides"
	case PeerCPU:
		return r.Unit + " processor, the peer's"
	case ClientCPU, ServiceCPU, ServersCPU, TotalCPU, NameMsgs, DataMsgs, Memory, FileBytes,
		EndToStart, ListMemory, ListEntries, ClientMemory, BeatCPU, Beats:
		return r.Unit + " " + r.Metric
	}
	return r.Unit
}
