package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// slow is a contender whose measurements take at least some time.
func slow(provider string, each time.Duration, ran *[]string) Contender {
	return Contender{Provider: provider, Measure: func(ctx context.Context,
		d time.Duration) (Result, error) {
		*ran = append(*ran, provider)
		time.Sleep(each)
		return Result{Value: 1}, ctx.Err()
	}}
}

func TestRunAllMeasuresFirstThingsFirstAndKeepsTheOrder(t *testing.T) {
	var ran []string
	cases := []Case{
		{Name: "a", Contenders: []Contender{slow("a", 0, &ran)}},
		{Name: "b", Contenders: []Contender{slow("b", 0, &ran)}, First: true},
	}
	rows, err := RunAll(t.Context(), Budget{Rounds: 1, Round: time.Millisecond}, cases)
	if err != nil || len(rows) != 2 || rows[0].Case != "a" || rows[1].Case != "b" {
		t.Errorf("%+v, %v", rows, err)
	}
	if got := strings.Join(ran, ""); got != "bbaa" {
		t.Errorf("measured in the order %s", got)
	}
}

func TestRunAllLeavesOutWhatDoesNotFit(t *testing.T) {
	var ran, notes []string
	var cases []Case
	for i := range 8 {
		cases = append(cases, Case{Name: fmt.Sprint("case ", i), First: i == 7,
			Contenders: []Contender{slow("x", 30*time.Millisecond, &ran)}})
	}
	b := Budget{Rounds: 5, Round: time.Millisecond, Total: 150 * time.Millisecond,
		Note: func(text string) { notes = append(notes, text) }}
	rows, err := RunAll(t.Context(), b, cases)
	if err != nil || len(rows) == 0 || len(rows) == 8 || len(notes) != 1 {
		t.Fatalf("%d rows, %q, %v", len(rows), notes, err)
	}
	for _, r := range rows {
		if strings.Contains(notes[0], r.Case) {
			t.Errorf("%s was measured, but: %s", r.Case, notes[0])
		}
	}
	if last := rows[len(rows)-1].Case; last != "case 7" {
		t.Errorf("what comes first was left out: %+v", rows)
	}
	if !strings.Contains(notes[0], "case 6") {
		t.Error(notes)
	}
}

func TestRunAllMeasuresAllThatWereNamed(t *testing.T) {
	var ran []string
	var cases []Case
	for i := range 8 {
		cases = append(cases, Case{Name: fmt.Sprint("case ", i),
			Contenders: []Contender{slow("x", 10*time.Millisecond, &ran)}})
	}
	b := Budget{Rounds: 5, Round: time.Millisecond, Total: time.Millisecond, All: true}
	rows, err := RunAll(t.Context(), b, cases)
	if err != nil || len(rows) != 8 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
}

func TestRunAllMeasuresOneIfItCan(t *testing.T) {
	var ran []string
	var cases []Case
	for i := range 3 {
		cases = append(cases, Case{Name: fmt.Sprint("case ", i), First: i == 1,
			Contenders: []Contender{slow("x", time.Second, &ran)}})
	}
	b := Budget{Rounds: 5, Round: time.Millisecond, Total: 500 * time.Millisecond}
	rows, err := RunAll(t.Context(), b, cases)
	if err != nil || len(rows) != 1 || rows[0].Case != "case 1" {
		t.Fatalf("%+v, %v", rows, err)
	}
}

func TestRoundsFitTheBudget(t *testing.T) {
	b := Budget{Rounds: 5, Round: 300 * time.Millisecond, Total: 22 * time.Second}
	for _, n := range []int{1, 10, 50, 90, 200} {
		round := b.roundFor(n)
		all := time.Duration(n) * (round*time.Duration(b.Rounds) + round/4)
		if round < roundMin || round > b.Round || round > roundMin && all > b.Total {
			t.Errorf("%d contenders have rounds of %v, %v together", n, round, all)
		}
	}
	b.Total = 0
	if b.roundFor(1000) != b.Round {
		t.Error("a budget without a total was cut")
	}
}

func TestOptionalContendersAreLeftOut(t *testing.T) {
	var ran, notes []string
	bad := Contender{Provider: "ib", Ceiling: "ib", Optional: true, Measure: func(context.Context,
		time.Duration) (Result, error) {
		return Result{}, errors.New("no device")
	}}
	ours := slow("verbs", 0, &ran)
	ours.Ceiling = "ib"
	c := Case{Name: "x", Contenders: []Contender{bad, ours}}
	rows, err := c.Run(t.Context(), Budget{Rounds: 2,
		Note: func(text string) { notes = append(notes, text) }})
	if err != nil || len(rows) != 1 || rows[0].Provider != "verbs" || rows[0].Ceiling != "" {
		t.Errorf("%+v, %v", rows, err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "no device") {
		t.Errorf("%q", notes)
	}
}

func TestExtrasAreRowsOfTheirOwn(t *testing.T) {
	contender := func(name string, cpu float64) Contender {
		c := constant(name, 100)
		measure := c.Measure
		c.Measure = func(ctx context.Context, d time.Duration) (Result, error) {
			r, err := measure(ctx, d)
			r.Extras = []Extra{{CPU, cpu}}
			return r, err
		}
		return c
	}
	closed := 0
	ours := contender("tcp", 3)
	ours.Close = func() error { closed++; return nil }
	c := Case{Name: "x", Metric: Bandwidth, Ceiling: "plain",
		Contenders: []Contender{contender("plain", 2), ours}}
	rows, err := c.Run(t.Context(), Budget{Rounds: 3})
	if err != nil || len(rows) != 4 || closed != 1 {
		t.Fatalf("%+v, %d closed, %v", rows, closed, err)
	}
	if r := rows[3]; r.Provider != "tcp" || r.Metric != CPU || r.Unit != "s/GiB" || r.Ratio != 1.5 {
		t.Errorf("%+v", r)
	}
}

func TestWarmingUpCountsWhenThereIsNoTimeForMore(t *testing.T) {
	var ran []string
	c := Case{Name: "x", Contenders: []Contender{slow("x", 20*time.Millisecond, &ran)}}
	rows, err := c.Run(t.Context(), Budget{Rounds: 3, Total: time.Millisecond})
	if err != nil || len(rows) != 1 || len(ran) != 1 {
		t.Errorf("%+v after %d measurements, %v", rows, len(ran), err)
	}
}

func TestOneSlowStartIsNotTheMedian(t *testing.T) {
	n := 0
	r, err := Repeat(t.Context(), time.Microsecond, 8, func() error {
		if n++; n == 1 {
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	})
	if err != nil || r.Value > 25e3 || n < 3 || r.Ops != n || r.Bytes != int64(8*n) {
		t.Errorf("%+v after %d times, %v", r, n, err)
	}
}

func TestRunAllGivesUpWhatHasBegunAndDoesNotEnd(t *testing.T) {
	var notes []string
	hangs := Contender{Provider: "x", Optional: true, Measure: func(ctx context.Context,
		_ time.Duration) (Result, error) {
		<-ctx.Done()
		return Result{}, ctx.Err()
	}}
	b := Budget{Rounds: 1, Total: 40 * time.Millisecond,
		Note: func(text string) { notes = append(notes, text) }}
	rows, err := RunAll(t.Context(), b, []Case{{Name: "hangs", Contenders: []Contender{hangs}}})
	if err != nil || len(rows) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "hangs") {
		t.Errorf("%+v, %q, %v", rows, notes, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RunAll(ctx, b, []Case{{Name: "hangs", Contenders: []Contender{hangs}}}); err == nil {
		t.Error("a bench that was given up succeeded")
	}
}
