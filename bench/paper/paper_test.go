package paper

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	benchiod "github.com/sluice-storage/sluice/bench/iod"
	benchnet "github.com/sluice-storage/sluice/bench/net"
	benchstore "github.com/sluice-storage/sluice/bench/store"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/clustertest"
	"github.com/sluice-storage/sluice/meta"
)

// cases are those that experiments choose among; fabric and nbd make theirs with what they measure.
func cases() map[string][]bench.Case {
	net := &benchnet.Bench{Providers: []string{benchnet.TCP, benchnet.Shm}, Sweeps: true}
	iod := &benchiod.Bench{Providers: net.Providers, Net: net, Store: &benchstore.Bench{}}
	own := &Files{Providers: net.Providers}
	return map[string][]bench.Case{"net": net.Cases(), "iod": iod.Cases(), OwnBench: own.Cases()}
}

// Every experiment can be run or says why not, chooses cases that exist, and compares with rows
// that these cases have.
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
		if e.CannotBe == "" && (e.Differs == "" || len(e.Claims) == 0) {
			t.Errorf("%s says not what differs, or what the paper found", e.Name)
		}
		var rows []bench.Row
		for _, p := range e.Parts {
			known, ok := all[p.Bench]
			if !ok {
				rows = nil
				break
			}
			chosen, err := bench.Choose(known, p.Cases)
			if err != nil {
				t.Errorf("%s: %v", e.Name, err)
			}
			rows = append(rows, made(chosen)...)
		}
		for _, c := range e.Claims {
			if c.Of == nil || rows == nil {
				continue
			}
			if _, ok := c.Of(rows); !ok {
				t.Errorf("%s: %q compares with nothing that is measured", e.Name, c.What)
			}
		}
	}
	for _, name := range strings.Fields("P7 p14 U4 U8 X5 X7 M6 M20 MT1") {
		if _, ok := Find(name); !ok {
			t.Errorf("there is no %s", name)
		}
	}
}

// made are rows as the cases would have them.
func made(cases []bench.Case) (rows []bench.Row) {
	one := 1.0
	for _, c := range cases {
		for _, by := range c.Contenders {
			for _, metric := range []string{c.Metric, bench.Busy} {
				rows = append(rows, bench.Row{Case: c.Name, Provider: by.Provider, Metric: metric,
					Value: 1, Cost: bench.Cost{LocalCPU: &one, RemoteCPU: &one}})
			}
		}
	}
	return rows
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
	page = Page(page, []Outcome{two.Outcome(nil, "")})
	for _, want := range []string{"# The papers' experiments\n", "## M13, M14, M15, M16: ",
		"It cannot be run here. ", "## P13: tiles", "| tile-read | shm, vector |",
		"`sluice bench paper P13`"} {
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
}
