package nbd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/bench"
)

// made are rows as a run would have them.
func made(scene, name, metric string, kinds map[string]Kind,
	values map[string]float64) (rows []bench.Row) {
	for _, who := range []string{Sluice, Volume(4), Multiple, Cached, Plain, Qemu, Nbdkit, Null} {
		if v, ok := values[who]; ok {
			rows = append(rows, bench.Row{Bench: "nbd", Case: scene + "-" + name, Provider: who,
				Metric: metric, Unit: bench.Unit(metric), Value: v, Low: v, High: v})
		}
	}
	relate(rows, kinds)
	return rows
}

func TestPromises(t *testing.T) {
	kinds := map[string]Kind{Qemu: Peer, Nbdkit: Peer, Null: Ceiling}
	var rows []bench.Row
	add := func(scene, name, metric string, values map[string]float64) {
		rows = append(rows, made(scene, name, metric, kinds, values)...)
	}
	add(SceneTmpfs, "read-1m-d4", bench.Bandwidth,
		map[string]float64{Sluice: 90, Qemu: 100, Nbdkit: 80, Null: 100})
	add(SceneTmpfs, "read-1m-d4", bench.SystemCPU, map[string]float64{Sluice: 3, Qemu: 10, Nbdkit: 5})
	add(SceneTmpfs, "randread-4k-d16", bench.Rate, map[string]float64{Sluice: 200, Qemu: 100})
	add(SceneVolume, "randread-4k-d16", bench.Rate, map[string]float64{Volume(4): 60, Cached: 100})
	add(SceneVolume, "randread-4k-d16", bench.SystemCPU,
		map[string]float64{Volume(4): 30, Cached: 10})
	add(SceneStreams, "read-1m-d1", bench.Bandwidth, map[string]float64{Multiple: 140, Plain: 100})
	const small = "4 KiB random reads at depth 16 of "
	want := map[string]struct {
		value float64
		met   bool
	}{
		"the worst case of a file in memory, of the best peer (read-1m-d4, qemu-nbd)": {0.9, false},
		"1 MiB sequential reads of a file in memory, of 1.3 times the best peer or of 85 % of the " +
			"null server": {0.9 / 0.85, true},
		small + "a file in memory, of the best peer":                            {2, true},
		"processor time of 1 MiB reads of a file in memory, of the best peer's": {0.6, true},
		small + "a volume over four servers, of a local cached file":            {0.6, true},
		"the same: processor time":                                              {3, false},
		"1 MiB direct reads at depth 1 of throttled members, multiple streams, of those without": {1.4,
			true},
	}
	all := bench.Judge(Promises(), rows)
	if len(all) != len(want) {
		t.Errorf("%d figures, want %d: %+v", len(all), len(want), all)
	}
	for _, f := range all {
		if w, ok := want[f.Name]; !ok || w.met != f.Met || f.Measured < w.value-1e-9 ||
			f.Measured > w.value+1e-9 {
			t.Errorf("%+v, want %+v", f, w)
		}
	}
}

func TestTables(t *testing.T) {
	kinds := map[string]Kind{Qemu: Peer, Null: Ceiling}
	rows := made(SceneDisk, "read-1m-d4", bench.Bandwidth, kinds,
		map[string]float64{Sluice: 150, Qemu: 100, Null: 300})
	rows = append(rows, made(SceneDisk, "read-1m-d4", bench.SystemCPU, kinds,
		map[string]float64{Sluice: 0.2, Qemu: 0.4})...)
	rows = append(rows, made(SceneDisk, "read-1m-d4", bench.ReaderCPU, kinds,
		map[string]float64{Sluice: 0.1, Qemu: 0.1})...)
	var out bytes.Buffer
	if err := WriteTable(&out, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Scene disk\n", "1.50 of qemu-nbd", "0.50 of null", "0.20 + 0.10"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	const line = "| disk-read-1m-d4 | MB/s | 150 (150-150) | 100 (100-100) | 300 (300-300) | " +
		"1.50 of qemu-nbd | 0.50 of null |\n"
	if text := Markdown(rows); !strings.Contains(text, line) ||
		!strings.Contains(text, "| case | sluice | qemu-nbd | null |\n") {
		t.Error(text)
	}
}
