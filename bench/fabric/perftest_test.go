package fabric

import (
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/benchtest"
	"github.com/sluice-storage/sluice/errs"
)

// The texts in testdata/perftest are what perftest 6.06 printed over Soft-RoCE; those with other
// units were made by hand.
func TestPerftestReports(t *testing.T) {
	for _, c := range []struct {
		file, metric string
		want         float64
	}{
		{"send_lat_8", bench.Latency, 2 * 31.97},
		{"write_bw_64k", bench.Bandwidth, 35.61 * 1.048576},
		{"read_bw_1m", bench.Bandwidth, 42.39 * 1.048576},
		{"write_bw_8", bench.Rate, 18399},
		{"write_bw_gbits", bench.Bandwidth, 92.57 * 125},
		{"write_bw_mib", bench.Bandwidth, 11034.53 * 1.048576},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", "perftest", c.file+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := parsePerftest(text)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		if v, err := r.value(c.metric); err != nil || math.Abs(v/c.want-1) > 1e-9 {
			t.Errorf("%s: %s is %v, want %v (%v)", c.file, c.metric, v, c.want, err)
		}
		other := bench.Latency
		if c.metric == bench.Latency {
			other = bench.Rate
		}
		if v, err := r.value(other); err == nil {
			t.Errorf("%s: has a %s, %v", c.file, other, v)
		}
	}
}

func TestPerftestEach(t *testing.T) {
	lat := &report{columns: []string{"t_typical[usec]"}, values: []float64{30}}
	if got := lat.each(8); got != 60*time.Microsecond {
		t.Error(got)
	}
	bw := &report{columns: []string{"BW average[MB/sec]"}, values: []float64{1e6 / (1 << 20)}}
	if got := bw.each(1000); got != time.Millisecond {
		t.Error(got)
	}
	if got := (&report{}).each(8); got != 1 {
		t.Error(got)
	}
}

func TestPerftestRefusesWhatIsNoReport(t *testing.T) {
	for _, text := range []string{
		"", "no RDMA devices\n", "#bytes #iterations BW average[MB/sec]\n",
		"#bytes #iterations BW average[MB/sec]\n8 5 x\n",
		"#bytes #iterations BW average[MB/sec]\n8 5 NaN\n",
		"#bytes #iterations BW average[MB/sec]\n8 5 -1\n", "8 5 1 1 1\n",
	} {
		if r, err := parsePerftest([]byte(text)); errs.KindOf(err) != errs.Protocol {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
}

func FuzzPerftestReport(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "perftest", "*.txt"))
	if err != nil || len(files) == 0 {
		f.Fatalf("%d texts, %v", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("#bytes #iterations BW average[MB/sec]\n8 5 1e400\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parsePerftest(text)
		if err != nil {
			return
		}
		if len(r.columns) != len(r.values) {
			t.Fatalf("%d names of %d figures", len(r.columns), len(r.values))
		}
		for _, metric := range []string{bench.Latency, bench.Bandwidth, bench.Rate, bench.CPU} {
			v, err := r.value(metric)
			if err == nil && !(v > 0 && !math.IsInf(v, 0)) {
				t.Fatalf("%s is %v", metric, v)
			}
		}
		if r.each(8) < 1 {
			t.Fatal("an operation takes no time")
		}
	})
}

// TestPerftestWithoutDevice runs the real programs where there is nothing for them: they fail, and
// that is told and soon over.
func TestPerftestWithoutDevice(t *testing.T) {
	if err := perftestMissing(); err != nil {
		t.Skip(err)
	}
	c := (&Perftest{Device: "absent0"}).contender(writeBW, 8, 0, bench.Bandwidth)
	begin := time.Now()
	if v, err := c.Measure(t.Context(), time.Millisecond); err == nil {
		t.Errorf("measured %v without a device", v)
	}
	if took := time.Since(begin); took > readyMax {
		t.Errorf("it took %v", took)
	}
}

func TestListening(t *testing.T) {
	ln := benchtest.Listen(t)
	port := ln.Addr().(*net.TCPAddr).Port
	if !listening(port) {
		t.Error("a listener is not seen")
	}
	ln.Close()
	if listening(port) {
		t.Error("a listener that was closed is seen")
	}
}
