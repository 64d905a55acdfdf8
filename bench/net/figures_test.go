package net

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/bench"
)

func TestFigures(t *testing.T) {
	zero, many := 0.0, 3.0
	rows := []bench.Row{
		{Case: "rtt-8", Provider: "tcp", Metric: bench.Latency, Value: 12, Ratio: 1.2,
			Cost: bench.Cost{Allocs: &zero}},
		{Case: "rtt-8", Provider: "shm, asleep", Metric: bench.Latency, Value: 7, Ratio: 0.7},
		{Case: "rtt-8", Provider: "shm", Metric: bench.Latency, Value: 2, Ratio: 0.2,
			Cost: bench.Cost{Allocs: &many}},
		{Case: "rtt-8-spin", Provider: "shm", Metric: bench.Latency, Value: 1.4, Ratio: 0.1},
		{Case: "gather-16x64k", Provider: "shm", Metric: bench.Bandwidth, Value: 9000, Ratio: 0.96},
		{Case: "gather-16x64k", Provider: "shm", Metric: bench.Requests, Value: 16},
		{Case: "pack-16x64k", Provider: "shm", Metric: bench.Bandwidth, Value: 4500, Ratio: 0.5},
		{Case: "gather-16x64k", Provider: "verbs", Metric: bench.Bandwidth, Value: 900,
			Cost: bench.Cost{Copies: &zero}},
		{Case: "gather-16x64k", Provider: "verbs", Metric: bench.Requests, Value: 16},
		{Case: "gather-16x64k", Provider: "verbs", Metric: bench.Doorbells, Value: 1},
		{Case: "layers-8", Provider: "shm, base", Metric: bench.Latency, Value: 1, Low: 0.75},
		{Case: "layers-8", Provider: "shm, msg", Metric: bench.Latency, Value: 1.75, Low: 1},
	}
	want := map[string]struct {
		v   float64
		met bool
	}{
		"tcp: rtt-8 against plain Go TCP":                         {1.2, true},
		"tcp: allocations per request":                            {0, true},
		"shm: allocations per request":                            {3, false},
		"shm: rtt-8 asleep against plain Go TCP":                  {0.7, false},
		"shm: rtt-8-spin":                                         {1.4, true},
		"shm: gather-16x64k against pack-16x64k":                  {2, true},
		"shm: gather-16x64k against contig-16x64k":                {0.96, true},
		"shm: the message layer adds (layers-8)":                  {0.75, false},
		"shm: the message layer adds (layers-8, quickest rounds)": {0.25, true},
		"verbs: gather-16x64k, copies per byte":                   {0, true},
		"verbs: gather-16x64k, work requests per destination":     {1, true},
		"verbs: gather-16x64k, doorbells":                         {1, true},
	}
	got := bench.Judge(Promises(), rows)
	if len(got) != len(want) {
		t.Errorf("%d figures, want %d: %+v", len(got), len(want), got)
	}
	for _, f := range got {
		if w := want[f.Name]; f.Measured != w.v || f.Met != w.met {
			t.Errorf("%+v, want %+v", f, w)
		}
	}
	var text, object bytes.Buffer
	err := bench.WriteFigures(&text, got)
	if err != nil || strings.Count(text.String(), "NOT MET") != 3 {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := bench.WriteFiguresJSON(&object, got); err != nil || !json.Valid(object.Bytes()) {
		t.Errorf("%v\n%s", err, object.String())
	}
}
