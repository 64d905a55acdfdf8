package bench

import (
	"context"
	"errors"
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
		time.Duration) (Result, error) {
		i++
		if i == 0 {
			return Result{Value: 1e9}, nil
		}
		return Result{Value: values[(i-1)%len(values)]}, nil
	}}
}

func TestRunTakesMediansAndRatios(t *testing.T) {
	c := Case{Bench: "net", Name: "x", Size: 8, Depth: 2, Metric: Latency,
		Ceiling:    "plain",
		Contenders: []Contender{constant("plain", 10, 30, 20), constant("tcp", 24, 1, 90)}}
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
		time.Duration) (Result, error) {
		return Result{}, errors.New("no route")
	}}
	_, err := Case{Bench: "net", Name: "x", Contenders: []Contender{bad}}.Run(t.Context(), Quick())
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Fatalf("got %v", err)
	}
}

func TestLoadCountsEveryWorkerAndStopsAtErrors(t *testing.T) {
	ran := make([]int, 4)
	r, err := Load{Depth: 4, Size: 1000, Op: func(w, i int) error {
		ran[w] = i + 1
		time.Sleep(time.Millisecond)
		return nil
	}}.Run(t.Context(), 10*time.Millisecond)
	if err != nil || r.In(Bandwidth) <= 0 || r.In(Rate) <= 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	all := 0
	for w, n := range ran {
		if all += n; n == 0 {
			t.Errorf("worker %d did nothing", w)
		}
	}
	if r.Ops != all || r.Bytes != int64(1000*all) {
		t.Errorf("%d operations were done: %+v", all, r)
	}
	fail := func(int, int) error { return errors.New("no") }
	if _, err = (Load{Depth: 2, Op: fail}).Run(t.Context(), time.Minute); err == nil {
		t.Fatal("an error was lost")
	}
}

func TestLoadDoesWhatItHasToDoHoweverShortTheTime(t *testing.T) {
	r, err := Load{Depth: 3, Size: 1, Least: 100, Op: func(int, int) error { return nil }}.Run(
		t.Context(), 0)
	if err != nil || r.Ops < 100 {
		t.Errorf("%+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := func(int, int) error { t.Error("it goes on"); return nil }
	if _, err := (Load{Depth: 1, Least: 9, Op: never}).Run(ctx, time.Hour); err == nil {
		t.Error("a load that was given up succeeded")
	}
}
