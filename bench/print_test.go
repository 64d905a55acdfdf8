package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// sampleRows has everything that rows can have: a sweep, bars, depths, a row without a ceiling.
func sampleRows() []Row {
	row := func(c, provider string, size int64, depth int, metric string, v float64,
		ceiling string, ratio float64) Row {
		return Row{Bench: "fabric", Case: c, Provider: provider, Size: size, Depth: depth,
			Metric: metric, Unit: unitOf(metric), Value: v, Ceiling: ceiling, Ratio: ratio,
			Low: v * 0.9, High: v * 1.25}
	}
	const plain = "plain Go TCP"
	return []Row{
		row("rtt-8", plain, 8, 1, Latency, 10, plain, 1),
		row("rtt-8", "tcp", 8, 1, Latency, 12.5, plain, 1.25),
		row("write-4k", plain, 4096, 16, Bandwidth, 900, plain, 1),
		row("write-4k", "tcp", 4096, 16, Bandwidth, 450, plain, 0.5),
		row("write-64k", plain, 65536, 16, Bandwidth, 3000, plain, 1),
		row("write-64k", "tcp", 65536, 16, Bandwidth, 2700, plain, 0.9),
		row("write-1m", plain, 1<<20, 16, Bandwidth, 4000, plain, 1),
		row("write-1m", "tcp", 1<<20, 16, Bandwidth, 3900, plain, 0.975),
		row("write-1m", "tcp", 1<<20, 16, CPU, 0.302, plain, 0),
		row("write-1m", "tcp", 1<<20, 16, PeerCPU, 0.151, plain, 0),
		row("read from a server's cache", "tcp", 1<<20, 1, Bandwidth, 2000, plain, 0.5),
		row("read from a server's cache", "tcp", 1<<20, 4, Bandwidth, 3000, plain, 0.75),
		row("rate-8", "verbs <&> \"more\"", 8, 32, Rate, 123456, "", 0),
	}
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the golden files anew")
	goleak.VerifyTestMain(m)
}

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; look, and if it should: go test ./bench -update\n%s", file, got)
	}
}

func TestJSONIsAsDocumented(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, sampleRows()[:2]); err != nil {
		t.Fatal(err)
	}
	golden(t, "rows.json", b.Bytes())

	// The order of the fields is part of it.
	var rows []json.RawMessage
	if err := json.Unmarshal(b.Bytes(), &rows); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for d := json.NewDecoder(bytes.NewReader(rows[1])); ; {
		token, err := d.Token()
		if err != nil {
			break
		}
		if text, ok := token.(string); ok && len(keys)%2 == 0 {
			keys = append(keys, text)
			if _, err := d.Token(); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, "")
		}
	}
	got := strings.Join(strings.Fields(strings.Join(keys, " ")), " ")
	want := "bench case provider size depth metric unit value ceiling ratio low high"
	if got != want {
		t.Errorf("fields: %s\n  want: %s", got, want)
	}
	b.Reset()
	if err := WriteJSON(&b, nil); err != nil || json.Unmarshal(b.Bytes(), &rows) != nil {
		t.Errorf("no rows: %v, %q", err, b.String())
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := WriteTable(&b, sampleRows()); err != nil {
		t.Fatal(err)
	}
	golden(t, "rows.txt", b.Bytes())
}

func TestMarkdown(t *testing.T) {
	about := About{Title: "sluice bench x", Machine: "a machine", Command: "sluice bench x"}
	text, err := Markdown(about, sampleRows()[:2], nil)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "rows.md", text)
	around := append(append([]byte("before\n"), text...), "after\n"...)
	again, err := Markdown(about, sampleRows()[:2], around)
	if err != nil || !bytes.Equal(again, around) {
		t.Errorf("the same table again: %v\n%s", err, again)
	}
	other, err := Markdown(about, sampleRows()[2:4], around)
	if err != nil || !bytes.HasPrefix(other, []byte("before\n")) ||
		!bytes.HasSuffix(other, []byte("after\n")) || bytes.Contains(other, []byte("rtt-8")) {
		t.Errorf("another table: %v\n%s", err, other)
	}
	if _, err := Markdown(about, nil, []byte("by hand\n")); err == nil {
		t.Error("a text of somebody's was overwritten")
	}
}

func TestMachineIsNotEmpty(t *testing.T) {
	if m := Machine(); !strings.Contains(m, "cores") || !strings.Contains(m, "go1") {
		t.Error(m)
	}
	if got := fieldOf("/nonexistent/file", "x", "otherwise"); got != "otherwise" {
		t.Error(got)
	}
}
