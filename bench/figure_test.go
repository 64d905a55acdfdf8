package bench

import (
	"bytes"
	"encoding/json"
	"regexp"
	"testing"
)

func TestFiguresHoldRowsAgainstPromises(t *testing.T) {
	rows := []Row{
		{Case: "a", Provider: "ours", Metric: Rate, Unit: "op/s", Value: 60, Ratio: 0.6},
		{Case: "b", Provider: "ours", Metric: Restart, Unit: "s", Value: 6, Low: 5},
	}
	list := Judge([]Promise{
		{Name: "just enough", Bound: Least, Limit: 0.6, Unit: Times, Of: Ratio("a", "ours")},
		{Name: "too slow", Bound: Most, Limit: 5, Unit: "s", Of: Value("b", "ours", Restart)},
		{Name: "quick enough", Bound: Most, Limit: 5, Unit: "s", Of: Quickest("b", "ours")},
		{Name: "told", Bound: Told, Of: Both(Value("a", "ours", ""), Value("b", "ours", ""), Through),
			Also: func(Rows) string { return " besides" }},
		{Name: "not measured", Bound: Least, Limit: 1, Of: Ratio("c", "ours")},
		{Name: "without a ceiling", Bound: Least, Limit: 1, Of: Ratio("b", "ours")},
		{Name: "without a cost", Bound: Most, Of: CostOf("a", "ours", Allocs)},
	}, rows)
	var text, object bytes.Buffer
	if err := WriteFigures(&text, list); err != nil || len(list) != 4 {
		t.Fatalf("%v, %+v", err, list)
	}
	for _, want := range []string{"just enough +0.60 x +at least 0.6 +met",
		"too slow +6.0 s +at most 5 +NOT MET",
		"quick enough +5.0 s +at most 5 +met", "told besides +10.0 +printed"} {
		if !regexp.MustCompile(want).MatchString(text.String()) {
			t.Errorf("%s is not in\n%s", want, text.String())
		}
	}
	if err := WriteFiguresJSON(&object, list); err != nil || !json.Valid(object.Bytes()) {
		t.Errorf("%v\n%s", err, object.String())
	}
}
