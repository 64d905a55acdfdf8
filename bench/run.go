package bench

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Budget says how long measuring may take.
type Budget struct {
	Rounds int           // each contender is measured this often, in turns; the median counts
	Round  time.Duration // how long one measurement lasts
	Total  time.Duration // of all cases together, see RunAll; 0: as long as it takes
	All    bool          // no case is left out, however long it takes
	Note   func(string)  // is called with what is left out and why; may be nil
}

// Quick fits all benches of one kind into 30 seconds; Full gives steadier figures.
func Quick() Budget {
	return Budget{Rounds: 3, Round: 300 * time.Millisecond, Total: 20 * time.Second}
}

// Full is the budget of published figures.
func Full() Budget { return Budget{Rounds: 7, Round: time.Second} }

// Contender is one way of doing a case.
type Contender struct {
	Provider string
	Depth    int    // operations under way at once; 0: the case's
	Ceiling  string // the Provider that it is held against; "": the case's ceiling
	Optional bool   // if it fails it is left out, and the others are not
	Case     string // the name of its rows' case; "": the case's
	Protocol string // for the row, like Progress
	Progress string
	Measure  Measure
	Close    func() error // ends what Measure has opened; may be nil
}

// Case is one thing to measure, and its contenders, in turns.
type Case struct {
	Bench, Name string
	Size        int64
	Depth       int
	Metric      string
	About       string // one line for a list to choose from; may be empty
	First       bool   // when time is short it comes before the others
	Ceiling     string // what contenders are compared with that name none; "": nothing
	Contenders  []Contender
}

// Add adds contenders.
func (c *Case) Add(more ...Contender) { c.Contenders = append(c.Contenders, more...) }

// Run measures a case: one round to warm up, which does not count, then the rounds of the budget,
// in each of which every contender has its turn. If the rounds do not fit into the budget's total
// there are fewer; if not even one does, the warming up has to count.
func (c Case) Run(ctx context.Context, b Budget) ([]Row, error) {
	all := make([]*track, 0, len(c.Contenders))
	for _, contender := range c.Contenders {
		all = append(all, &track{Contender: contender, metric: c.Metric})
	}
	defer func() {
		for _, t := range slices.Backward(all) {
			t.close()
		}
	}()
	begin := time.Now()
	for _, t := range all {
		if err := t.turn(ctx, b.Round/4); err != nil {
			return nil, c.failed(t, err)
		}
	}
	rounds := b.Rounds
	if b.Total > 0 {
		warm := time.Since(begin) // a round takes as long, and the rest of its measurements besides
		round := warm + time.Duration(len(all))*b.Round*3/4
		rounds = max(0, min(rounds, int((b.Total-warm)/round)))
	}
	for i := range rounds {
		for _, t := range all {
			if i == 0 {
				t.forget()
			}
			if err := t.turn(ctx, b.Round); err != nil {
				return nil, c.failed(t, err)
			}
		}
	}
	for _, t := range all {
		if t.err != nil {
			b.note("%s by %s is left out: %v", c.Name, t.Provider, t.err)
		}
	}
	return c.rows(all), nil
}

func (c Case) failed(t *track, err error) error {
	return errs.Wrap("bench "+c.Bench, c.Name+" by "+t.Provider, err)
}

// track is a contender on its way through the rounds.
type track struct {
	Contender
	metric  string // of the case
	err     error  // why an optional one was left out
	metrics []string
	values  map[string][]float64
	costs   []Cost
}

// turn measures once.
func (t *track) turn(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.err != nil {
		return nil
	}
	r, err := t.Measure(ctx, d)
	if err != nil && t.Optional && ctx.Err() == nil {
		t.err = err
		return nil
	}
	if err != nil {
		return err
	}
	t.note("", r.In(t.metric))
	t.costs = append(t.costs, r.Cost)
	for _, x := range r.Extras {
		t.note(x.Metric, x.Value)
	}
	return nil
}

func (t *track) note(metric string, v float64) {
	if t.values == nil {
		t.values = map[string][]float64{}
	}
	if _, ok := t.values[metric]; !ok {
		t.metrics = append(t.metrics, metric)
	}
	t.values[metric] = append(t.values[metric], v)
}

// forget drops what was measured so far.
func (t *track) forget() { t.metrics, t.values, t.costs = nil, nil, nil }

func (t *track) close() {
	if t.Close != nil {
		_ = t.Close() // it has been measured
	}
}

// rows are the figures: first those of the case's metric, then the extras, metric by metric.
func (c Case) rows(all []*track) []Row {
	metrics := []string{""}
	for _, t := range all {
		for _, m := range t.metrics {
			if !slices.Contains(metrics, m) {
				metrics = append(metrics, m)
			}
		}
	}
	var rows []Row
	for _, m := range metrics {
		for _, t := range all {
			if values := t.values[m]; t.err == nil && values != nil {
				rows = append(rows, c.row(all, t, m))
			}
		}
	}
	return rows
}

func (c Case) row(all []*track, t *track, metric string) Row {
	values := t.values[metric]
	r := Row{Bench: c.Bench, Case: cmp.Or(t.Case, c.Name), Provider: t.Provider, Size: c.Size,
		Depth: cmp.Or(t.Depth, c.Depth), Metric: metric, Protocol: t.Protocol, Progress: t.Progress,
		Value: Median(values), Low: slices.Min(values), High: slices.Max(values)}
	if metric == "" {
		r.Metric, r.Cost = c.Metric, medianCost(t.costs)
	}
	r.Unit = unitOf(r.Metric)
	name := cmp.Or(t.Contender.Ceiling, c.Ceiling)
	for _, other := range all {
		if other.Provider != name || other.err != nil || len(other.values[metric]) == 0 {
			continue
		}
		r.Ceiling = name
		if against := Median(other.values[metric]); against > 0 {
			r.Ratio = r.Value / against
		}
		break
	}
	return r
}

// Median is the middle value; of an even number the mean of the two in the middle; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Clone(values)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
