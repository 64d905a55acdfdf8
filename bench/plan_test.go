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
	return Contender{Provider: provider, Measure: func(_ context.Context,
		d time.Duration) (float64, error) {
		*ran = append(*ran, provider)
		time.Sleep(each)
		return 1, nil
	}}
}

func TestRunAllMeasuresFirstThingsFirstAndKeepsTheOrder(t *testing.T) {
	var ran []string
	cases := []Case{
		{Name: "a", Ceiling: slow("a", 0, &ran)},
		{Name: "b", Ceiling: slow("b", 0, &ran), First: true},
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
			Ceiling: slow("x", 30*time.Millisecond, &ran)})
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
			Ceiling: slow("x", 10*time.Millisecond, &ran)})
	}
	b := Budget{Rounds: 5, Round: time.Millisecond, Total: time.Millisecond, All: true}
	rows, err := RunAll(t.Context(), b, cases)
	if err != nil || len(rows) != 8 {
		t.Fatalf("%d rows, %v", len(rows), err)
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
		time.Duration) (float64, error) {
		return 0, errors.New("no device")
	}}
	ours := slow("verbs", 0, &ran)
	ours.Ceiling = "ib"
	c := Case{Name: "x", Others: []Contender{bad, ours}}
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
		c.Extras = func() []Extra { return []Extra{{CPU, cpu}} }
		return c
	}
	closed := 0
	ours := contender("tcp", 3)
	ours.Close = func() error { closed++; return nil }
	c := Case{Name: "x", Metric: Bandwidth, Ceiling: contender("plain", 2), Others: []Contender{ours}}
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
	c := Case{Name: "x", Ceiling: slow("x", 20*time.Millisecond, &ran)}
	rows, err := c.Run(t.Context(), Budget{Rounds: 3, Total: time.Millisecond})
	if err != nil || len(rows) != 1 || len(ran) != 1 {
		t.Errorf("%+v after %d measurements, %v", rows, len(ran), err)
	}
}

func TestOneSlowStartIsNotTheMedian(t *testing.T) {
	n := 0
	v, err := MedianLatency(t.Context(), time.Microsecond, func() error {
		if n++; n == 1 {
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	})
	if err != nil || v > 25e3 || n < 3 {
		t.Errorf("%v us after %d times, %v", v, n, err)
	}
}

func TestRunAllGivesUpWhatHasBegunAndDoesNotEnd(t *testing.T) {
	var notes []string
	hangs := Contender{Provider: "x", Optional: true, Measure: func(ctx context.Context,
		_ time.Duration) (float64, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}}
	b := Budget{Rounds: 1, Total: 40 * time.Millisecond,
		Note: func(text string) { notes = append(notes, text) }}
	rows, err := RunAll(t.Context(), b, []Case{{Name: "hangs", Ceiling: hangs}})
	if err != nil || len(rows) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "hangs") {
		t.Errorf("%+v, %q, %v", rows, notes, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RunAll(ctx, b, []Case{{Name: "hangs", Ceiling: hangs}}); err == nil {
		t.Error("a bench that was given up succeeded")
	}
}
