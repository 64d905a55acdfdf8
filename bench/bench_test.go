package bench

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestMedianHasAsManyAboveAsBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 50).Draw(t, "values")
		m, above, below := Median(values), 0, 0
		for _, v := range values {
			if v > m {
				above++
			}
			if v < m {
				below++
			}
		}
		if 2*above > len(values) || 2*below > len(values) {
			t.Fatalf("%d above and %d below %v in %v", above, below, m, values)
		}
	})
}

func constant(provider string, values ...float64) Contender {
	i := -1 // the first one is the warming up
	return Contender{Provider: provider, Measure: func(context.Context,
		time.Duration) (float64, error) {
		i++
		if i == 0 {
			return 1e9, nil
		}
		return values[(i-1)%len(values)], nil
	}}
}

func TestRunTakesMediansAndRatios(t *testing.T) {
	c := Case{Bench: "net", Name: "x", Size: 8, Depth: 2, Metric: Latency,
		Ceiling: constant("plain", 10, 30, 20), Others: []Contender{constant("tcp", 24, 1, 90)}}
	rows, err := c.Run(t.Context(), Budget{Rounds: 3, Round: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{
		{Bench: "net", Case: "x", Provider: "plain", Size: 8, Depth: 2, Metric: Latency, Unit: "us",
			Value: 20, Ceiling: "plain", Ratio: 1, Low: 10, High: 30},
		{Bench: "net", Case: "x", Provider: "tcp", Size: 8, Depth: 2, Metric: Latency, Unit: "us",
			Value: 24, Ceiling: "plain", Ratio: 1.2, Low: 1, High: 90},
	}
	for i := range want {
		if rows[i] != want[i] {
			t.Errorf("row %d is %+v, want %+v", i, rows[i], want[i])
		}
	}
}

func TestRunNamesTheFailingContender(t *testing.T) {
	bad := Contender{Provider: "broken", Measure: func(context.Context,
		time.Duration) (float64, error) {
		return 0, errors.New("no route")
	}}
	_, err := Case{Bench: "net", Name: "x", Ceiling: bad}.Run(t.Context(), Quick())
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Fatalf("got %v", err)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func TestPlainPeers(t *testing.T) {
	for name, c := range map[string]func() Contender{
		"ping": func() Contender {
			ln := listen(t)
			go ServeEcho(ln)
			return PlainPing(ln.Addr().String())
		},
		"bulk": func() Contender {
			ln := listen(t)
			go ServeBulk(ln)
			return PlainBulk(ln.Addr().String(), 1<<20, 4)
		},
		"walk": func() Contender {
			ln := listen(t)
			go ServeWalk(ln)
			return PlainWalk(ln.Addr().String(), 1<<20, 4)
		},
	} {
		v, err := c().Measure(t.Context(), 20*time.Millisecond)
		if err != nil || v <= 0 {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}

func TestThroughputCountsEveryWorkerAndStopsAtErrors(t *testing.T) {
	ran := make([]int, 4)
	mbs, err := Throughput(t.Context(), 10*time.Millisecond, 4, 1000, func(w, i int) error {
		ran[w] = i + 1
		time.Sleep(time.Millisecond)
		return nil
	})
	if err != nil || mbs <= 0 {
		t.Fatalf("%v, %v", mbs, err)
	}
	for w, n := range ran {
		if n == 0 {
			t.Errorf("worker %d did nothing", w)
		}
	}
	fail := func(int, int) error { return errors.New("no") }
	_, err = Throughput(t.Context(), time.Minute, 2, 1, fail)
	if err == nil {
		t.Fatal("an error was lost")
	}
}

func TestFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := FillFile(name); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Size() != FileBytes {
		t.Fatalf("%v, %v", info, err)
	}
	for _, c := range []Contender{FileRead("host", name, 1<<20), FileWrite("host", name, 1<<20)} {
		if v, err := c.Measure(t.Context(), 20*time.Millisecond); err != nil || v <= 0 {
			t.Errorf("%v, %v", v, err)
		}
	}
	if _, err := FileRead("host", name+"x", 1).Measure(t.Context(), 1); err == nil {
		t.Error("an absent file was read")
	}
}

func TestDeviceNeedsAServer(t *testing.T) {
	if _, err := exec.LookPath("fio"); err != nil {
		t.Skip("needs fio: make deps")
	}
	uri := "nbd+unix:///x?socket=" + filepath.Join(t.TempDir(), "absent")
	c := DeviceRead("nobody", uri, Bandwidth, 4096, 1)
	if v, err := c.Measure(t.Context(), 10*time.Millisecond); err == nil {
		t.Errorf("measured %v without a server", v)
	}
}
