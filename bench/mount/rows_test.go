package mount

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
)

// example is a run of two rounds with values that are known.
func example() *Bench {
	b := &Bench{values: map[string]map[string]*series{}}
	sizes := tiny()
	for _, s := range steps(&sizes) {
		if s.name == treeCopy || s.name == seqRead || s.name == fileCreate {
			b.steps = append(b.steps, s)
		}
	}
	for i, name := range Names() {
		c := &contender{System: &named{name: name}, peer: name == Gluster || name == Moose}
		b.running = append(b.running, c)
		for _, s := range b.steps {
			for round := range 2 {
				took := time.Duration(i+1+2*round) * time.Second // 1..5 and 3..7: median i+2
				b.seriesOf(s, c).add(measured{system: time.Second, memory: 100 << 20, outcome: outcome{
					took: took, ops: 1000, files: 2000, bytes: 1 << 30, reader: time.Second / 2}})
			}
		}
	}
	return b
}

type named struct {
	local
	name string
}

func (n *named) Name() string { return n.name }

func TestRows(t *testing.T) {
	rows := bench.Rows(example().rows())
	r := rows.Find(treeCopy, Sluice, "")
	if r.Value != 2 || r.Low != 1 || r.High != 3 || r.Unit != "s" || r.Ceiling != Memory ||
		r.Ratio != 2.0/3 || r.Peer != Gluster || r.PeerRatio != 2.0/5 {
		t.Errorf("%+v", r)
	}
	if r := rows.Find(fileCreate, Sluice, ""); r.Peer != Gluster || r.PeerRatio <= 1 || r.Ratio <= 1 {
		t.Errorf("of rates the highest is the best: %+v", r)
	}
	r = rows.Find(treeCopy, Sluice, bench.SystemCPU)
	if r.Value != 0.5 || r.Unit != bench.PerThousand {
		t.Errorf("%+v", r)
	}
	if r := rows.Find(seqRead, Moose, bench.ReaderCPU); r.Value != 0.25 {
		t.Errorf("%+v", r)
	}
	if r := rows.Find(treeCopy, Sluice, bench.Memory); r.Value != 100 || r.Ceiling != "" {
		t.Errorf("%+v", r)
	}
	if r := rows.Find(treeCopy, Moose, ""); r.Peer != "" {
		t.Errorf("a peer is held against itself: %+v", r)
	}
}

func TestTables(t *testing.T) {
	rows := append(example().rows(), long(longCopy, 5e9, 120)...)
	var out bytes.Buffer
	if err := WriteTable(&out, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`(?m)^WORKLOAD +UNIT +SLUICE +MEMORY +LOCAL +GLUSTERFS +MOOSEFS`,
		`(?m)^cp-r +s +2\.0 \(1\.0-3\.0\) +3\.0 .* 0\.40 of glusterfs +0\.67 of memory$`,
		`(?m)^cp-r +s/1000 files +0\.50 \+ 0\.25 `, `(?m)^cp-r +MiB +100 `,
		`(?m)^long-copy +5\.0 GB +300 MB/s +120 +500$`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
	text := Markdown(rows)
	for _, want := range []string{"| workload | unit | sluice |", "|---|---|",
		"| cp-r | s | 2.0 (1.0-3.0) |", "| long-copy | 5.0 GB | 300 MB/s | 120 | 500 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	about := bench.About{Title: "bench mount", Command: "c", Machine: "m"}
	first, err := bench.MarkdownOf(about, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := bench.MarkdownOf(about, text, append(slices.Clone(first), "People's.\n"...))
	if err != nil || string(again) != string(first)+"People's.\n" {
		t.Errorf("%v\n%s", err, again)
	}
}

// long is a point of a long run.
func long(name string, at int64, mib float64) []bench.Row {
	row := bench.Row{Bench: "mount", Case: name, Provider: Sluice, Size: at, Metric: bench.Bandwidth,
		Unit: "MB/s", Value: 300}
	client, servers := row, row
	client.Provider, client.Metric, client.Value = longMount, bench.Memory, mib
	servers.Provider, servers.Metric, servers.Value = longServers, bench.Memory, 500
	return []bench.Row{row, client, servers}
}

func TestPromises(t *testing.T) {
	rows := append(example().rows(), append(long(longCopy, 5e9, 120), long(longCopy, 9e9, 130)...)...)
	found := map[string]bench.Figure{}
	for _, f := range bench.Judge(Promises(), rows) {
		found[f.Name] = f
	}
	for name, want := range map[string]struct {
		value float64
		met   bool
	}{
		"cp-r":                              {}, // not a name of a promise
		"cp -r of Go's source":              {2, true},
		"the same, of the best peer's time": {0.4, true},
		"the same: processor time of all processes, for each": {750, false},
		"a long copy: memory of the mount at the end":         {130, true},
	} {
		f, ok := found[name]
		if ok == (name == "cp-r") || ok && (f.Measured != want.value || f.Met != want.met) {
			t.Errorf("%s: %+v, %v", name, f, ok)
		}
	}
	random := func(value, ratio float64) float64 {
		v, _ := randomOf(bench.Rows{{Case: randomRead, Provider: Sluice, Value: value, Ratio: ratio}})
		return v
	}
	if random(50000, 0.1) != 1 || random(1, 0.6) != 1 || random(25000, 0.3) != 0.5 {
		t.Error("random reads")
	}
}

// TestGraphs checks that each translator stands on ones that were named before it.
func TestGraphs(t *testing.T) {
	brick := func(i int) string { return "/b" + string(rune('0'+i)) }
	for _, text := range []string{brickGraph("/b0", 4711), clientGraph(brick, []int{1, 2, 3, 4})} {
		known := map[string]bool{}
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			if len(fields) < 2 {
				continue
			}
			if fields[0] == "subvolumes" {
				for _, name := range fields[1:] {
					if !known[name] {
						t.Errorf("%s is not there:\n%s", name, text)
					}
				}
			}
			if fields[0] == "volume" {
				known[fields[1]] = true
			}
		}
		if len(known) < 8 {
			t.Errorf("%d translators:\n%s", len(known), text)
		}
	}
	if text := brickGraph("/b0", 4711); !strings.Contains(text, "listen-port 4711") ||
		!strings.Contains(text, "bind-address 127.0.0.1") {
		t.Error(text)
	}
}
