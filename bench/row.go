// Package bench measures sluice against what the same machine can do without it. Each figure is a
// Row that names its ceiling: the plain Go TCP, memory file system or NBD server that was measured
// in the same run, in turns with ours, so that a busy machine slows both down alike.
//
// It starts no servers: package main does, and hands in what to measure.
//
// Read row.go first (what comes out), then run.go (how a figure is made), then net.go, fs.go and
// nbd.go.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Row is one figure.
type Row struct {
	Bench    string  `json:"bench"`    // net, fs, nbd
	Case     string  `json:"case"`     // what was done
	Provider string  `json:"provider"` // by whom: tcp, mount, nbd; or the ceiling's name
	Size     int64   `json:"size"`     // bytes of one operation
	Depth    int     `json:"depth"`    // operations under way at once
	Metric   string  `json:"metric"`   // Latency or Bandwidth or Rate
	Unit     string  `json:"unit"`
	Value    float64 `json:"value"`   // median over the rounds
	Ceiling  string  `json:"ceiling"` // the Provider of the row that this one is held against
	Ratio    float64 `json:"ratio"`   // Value through the ceiling's value
}

// The metrics and their units. Of a Latency less is better; of the others more.
const (
	Latency   = "latency"
	Bandwidth = "bandwidth"
	Rate      = "rate"
)

func unitOf(metric string) string {
	switch metric {
	case Latency:
		return "us"
	case Bandwidth:
		return "MB/s"
	}
	return "op/s"
}

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

// WriteTable prints rows for people.
func WriteTable(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CASE\tPROVIDER\tSIZE\tDEPTH\tVALUE\tUNIT\tCEILING\tRATIO")
	for _, r := range rows {
		ceiling, ratio := r.Ceiling, fmt.Sprintf("%.2f", r.Ratio)
		if r.Ceiling == r.Provider {
			ceiling, ratio = "is the ceiling", ""
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Case, r.Provider, sizeText(r.Size),
			r.Depth, valueText(r.Value), r.Unit, ceiling, ratio)
	}
	return t.Flush()
}

func sizeText(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

func valueText(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
