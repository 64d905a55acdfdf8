package paper

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	benchiod "github.com/sluice-storage/sluice/bench/iod"
	benchnbd "github.com/sluice-storage/sluice/bench/nbd"
	benchnet "github.com/sluice-storage/sluice/bench/net"
	benchstore "github.com/sluice-storage/sluice/bench/store"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/clustertest"
	"github.com/sluice-storage/sluice/meta"
)

// cases are those that experiments choose among; those of fabric need a peer that says what it has.
func cases() map[string][]bench.Case {
	two := []string{benchnet.TCP, benchnet.Shm}
	net := &benchnet.Bench{Providers: append(two, benchnet.Verbs), Sweeps: true}
	iod := &benchiod.Bench{Providers: two, Net: net, Store: &benchstore.Bench{}}
	own, local := &Files{Providers: two}, &Local{Memory: "here"}
	return map[string][]bench.Case{"net": net.Cases(), "iod": iod.Cases(), OwnBench: own.Cases(),
		LocalBench: local.Cases(), "nbd": blockCases()}
}

// blockCases are those of bench nbd by servers that experiments name.
func blockCases() []bench.Case {
	all := benchnbd.List(benchnbd.Scenes("", nil))
	for i := range all {
		for _, name := range []string{"direct", "cached", "nbd-server"} {
			all[i].Add(bench.Contender{Provider: name})
		}
	}
	return all
}

// Every experiment can be run or says why not, chooses cases and ways that exist, and shows and
// compares only what these have.
func TestExperimentsChooseCasesThatExist(t *testing.T) {
	all, seen := cases(), map[string]bool{}
	for _, e := range All() {
		for _, n := range append([]string{e.Name}, e.Also...) {
			if seen[n] {
				t.Errorf("%s is there twice", n)
			}
			seen[n] = true
		}
		if (len(e.Parts) == 0) == (e.CannotBe == "") || e.Title == "" || Papers()[e.Letter()] == "" {
			t.Errorf("%s: %d parts, cannot be: %q", e.Name, len(e.Parts), e.CannotBe)
		}
		if e.Says == "" || e.CannotBe == "" && (e.Differs == "" || len(e.Claims) == 0 ||
			len(e.Graphs) == 0) {
			t.Errorf("%s says not what differs, or what the paper found", e.Name)
		}
		if rows, ok := possible(t, &e, all); ok {
			compares(t, &e, rows)
		}
	}
	for _, name := range strings.Fields("P7 p14 U4 U8 X5 X7 M6 M20 MT1 UT1 G3.7 G4.4") {
		if _, ok := Find(name); !ok {
			t.Errorf("there is no %s", name)
		}
	}
}

// possible are all rows that an experiment can have.
func possible(t *testing.T, e *Experiment, all map[string][]bench.Case) (rows []bench.Row,
	ok bool) {
	for _, p := range e.Parts {
		known := all[p.Bench]
		if known == nil {
			return nil, false
		}
		chosen, err := bench.Choose(known, p.Cases)
		if err == nil {
			chosen, err = bench.ChooseWays(chosen, p.Ways)
		}
		if err != nil || len(chosen) == 0 {
			t.Errorf("%s: %d cases, %v", e.Name, len(chosen), err)
		}
		rows = append(rows, made(chosen)...)
	}
	return rows, len(rows) > 0
}

// compares tells what an experiment shows or claims without a figure, also by the rows of another.
func compares(t *testing.T, e *Experiment, rows []bench.Row) {
	o := e.Outcome(rows, "")
	for _, text := range o.LeftOut {
		t.Errorf("%s: nothing is measured of %s", e.Name, text)
	}
	for i, c := range o.Claims {
		if c.here() == "" || c.Why == "not measured" {
			t.Errorf("%s: %q compares with nothing that is measured", e.Name, c.What)
		}
		if e.Claims[i].Holds != nil && c.Holds == nil {
			t.Errorf("%s: %q has no verdict", e.Name, c.What)
		}
	}
	if e.Same == "" {
		return
	}
	other, ok := Find(e.Same)
	if !ok {
		t.Fatalf("%s: there is no %s", e.Name, e.Same)
	}
	more, _ := possible(t, &other, cases())
	has := map[string]bool{}
	for _, r := range more {
		has[r.Case+" by "+r.Provider] = true
	}
	for _, r := range rows {
		if !has[r.Case+" by "+r.Provider] {
			t.Errorf("%s has %s by %s, which %s has not", e.Name, r.Case, r.Provider, e.Same)
		}
	}
}

// made are rows as the cases would have them.
func made(cases []bench.Case) (rows []bench.Row) {
	one := 1.0
	for _, c := range cases {
		metrics := []string{c.Metric, bench.Busy, bench.Requests, bench.CacheHits}
		for _, state := range []string{"init", "disk", "send_init", "send", "fin"} {
			metrics = append(metrics, bench.StateTime+state)
		}
		for i := range 16 {
			metrics = append(metrics, bench.Arrival+strconv.Itoa(i))
		}
		for _, by := range c.Contenders {
			for _, metric := range metrics {
				rows = append(rows, bench.Row{Case: c.Name, Provider: by.Provider, Metric: metric,
					Value: 1, Cost: bench.Cost{LocalCPU: &one, RemoteCPU: &one}})
			}
		}
	}
	return rows
}

func TestVerdicts(t *testing.T) {
	two := func(bench.Rows) (float64, bool) { return 2, true }
	none := func(bench.Rows) (float64, bool) { return 0, false }
	e := Experiment{Name: "P1", Claims: []Claim{shape("good", "3", two, over(1)),
		shape("bad", "3", two, under(1)), shape("gone", "3", none, over(1)),
		told("time", "3 us", us, two), absent("other", "9", "it is not here")}}
	rows := []bench.Row{{Case: "x"}}
	o := e.Outcome(rows, "")
	if want := "Here it came out otherwise in: bad."; o.Verdict != want {
		t.Errorf("%q, not %q", o.Verdict, want)
	}
	var here []string
	for i := range o.Claims {
		here = append(here, o.Claims[i].here()+"|"+o.Claims[i].holds())
	}
	want := []string{"2.00|yes", "2.00|no", "not measured|", "2.0 us|", "it is not here|"}
	if !slices.Equal(here, want) {
		t.Errorf("%q, not %q", here, want)
	}
	e.Claims = e.Claims[:1]
	if o := e.Outcome(rows, ""); o.Verdict != "So it came out here." {
		t.Error(o.Verdict)
	}
	if o := e.Outcome(nil, ""); o.Verdict != "" {
		t.Errorf("a verdict without figures: %s", o.Verdict)
	}
}

// This host's own storage is measured with the folders that there are.
func TestLocalMeasures(t *testing.T) {
	dir := t.TempDir()
	chosen, err := bench.Choose((&Local{Memory: dir}).Cases(), []string{"write", "read", "copy"})
	if err == nil {
		chosen, err = bench.ChooseWays(chosen, []string{"memory"})
	}
	if err != nil || len(chosen) != 3 {
		t.Fatal(chosen, err)
	}
	rows, err := bench.RunAll(t.Context(), bench.Budget{Rounds: 1, Round: time.Millisecond, All: true,
		Note: func(text string) { t.Error(text) }}, chosen)
	if err != nil || len(rows) != 3 {
		t.Fatal(rows, err)
	}
	for _, r := range rows {
		if r.Value <= 0 {
			t.Errorf("%s: %v", r.Case, r.Value)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// The client library's own cases move what they say, with a real cluster.
func TestFilesMeasure(t *testing.T) {
	url, stop, err := clustertest.Start(4)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	own := &Files{Providers: []string{"any"},
		Dial: func(ctx context.Context, _ string) (*client.FS, error) { return client.Open(ctx, url) }}
	chosen, err := bench.Choose(own.Cases(), []string{"read-c2-s2", "write-c2-s4", "unit-read-1m",
		"unit-write-64k", "tile-read", "apart-(read|write)"})
	if err != nil {
		t.Fatal(err)
	}
	b := bench.Budget{Rounds: 1, Round: time.Millisecond, All: true,
		Note: func(text string) { t.Error(text) }}
	rows, err := bench.RunAll(t.Context(), b, chosen)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chosen {
		found := false
		for _, r := range rows {
			found = found || r.Case == c.Name && r.Metric == bench.Bandwidth && r.Value > 0
			// Some rows are cut by a stripe unit.
			if r.Metric == bench.Requests && (r.Provider == "any, vector" && r.Value != servers ||
				r.Provider == "any, rows" && (r.Value < wallRows || r.Value > 2*wallRows)) {
				t.Errorf("%s by %s: %v requests", r.Case, r.Provider, r.Value)
			}
		}
		if !found {
			t.Errorf("%s has no figure", c.Name)
		}
	}
	fs, err := client.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	left := errors.New("files are left")
	if err := fs.ReadDir(t.Context(), "/", func(e meta.Entry) error {
		return errors.Join(left, errors.New(e.Name))
	}); err != nil {
		t.Error(err)
	}
}

func TestPageKeepsWhatIsNotRun(t *testing.T) {
	one, _ := Find("P13")
	two, _ := Find("M13")
	page := Page("", []Outcome{one.Outcome([]bench.Row{{Case: "tile-read", Provider: "shm, vector",
		Value: 123, Unit: "MB/s"}}, "sluice bench paper P13")})
	without := two.On(false)
	page = Page(page, []Outcome{without.Outcome(nil, "")})
	for _, want := range []string{"# The papers' experiments\n", "## M13, M14, M15, M16: ",
		"It cannot be run here. ", "## P13: tiles", "| read | 123 |",
		"`sluice bench paper P13`",
		"| list through row by row | more than 1 in all four | not measured |"} {
		if strings.Count(page, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, page)
		}
	}
	if strings.Index(page, "## M13") > strings.Index(page, "## P13") {
		t.Error("the sections are not in the order of the papers")
	}
	if again := Page(page, nil); again != page {
		t.Errorf("a page that nothing was added to has changed:\n%s", again)
	}
	// What was measured on a host that has the device outlives a run on one that has none.
	on := two.On(true)
	page = Page(page, []Outcome{on.Outcome([]bench.Row{{Case: "pinned-latency-16k",
		Provider: "verbs, cached", Value: 456, Unit: "us"}}, "sluice bench paper M13")})
	if kept := Page(page, []Outcome{without.Outcome(nil, "")}); kept != page ||
		!strings.Contains(page, "456") || strings.Contains(page, NoDevice) {
		t.Errorf("not kept:\n%s", kept)
	}
}
