package bench

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Budget says how long measuring may take.
type Budget struct {
	Rounds int           // each contender is measured this often, in turns; the median counts
	Round  time.Duration // how long one measurement lasts
}

// Quick fits all benches of one kind into 30 seconds; Full gives steadier figures.
func Quick() Budget { return Budget{Rounds: 3, Round: 300 * time.Millisecond} }

// Full is the budget of published figures.
func Full() Budget { return Budget{Rounds: 7, Round: time.Second} }

// Contender is one way of doing a case. Measure works for about d and returns the figure in the
// metric's unit.
type Contender struct {
	Provider string
	Depth    int // operations under way at once; 0: the case's
	Measure  func(ctx context.Context, d time.Duration) (float64, error)
}

// Case is one thing to do, the ceiling first and then those who are held against it.
type Case struct {
	Bench, Name string
	Size        int64
	Depth       int
	Metric      string
	Ceiling     Contender
	Others      []Contender
}

// Run measures a case: one round to warm up, which does not count, then the rounds of the budget,
// in each of which every contender has its turn.
func (c Case) Run(ctx context.Context, b Budget) ([]Row, error) {
	all := append([]Contender{c.Ceiling}, c.Others...)
	values := make([][]float64, len(all))
	for round := range b.Rounds + 1 {
		for i, contender := range all {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			d := b.Round
			if round == 0 {
				d /= 4
			}
			v, err := contender.Measure(ctx, d)
			if err != nil {
				return nil, errs.Wrap("bench "+c.Bench, c.Name+" by "+contender.Provider, err)
			}
			if round > 0 {
				values[i] = append(values[i], v)
			}
		}
	}
	rows := make([]Row, len(all))
	ceiling := Median(values[0])
	for i, contender := range all {
		depth := contender.Depth
		if depth == 0 {
			depth = c.Depth
		}
		rows[i] = Row{Bench: c.Bench, Case: c.Name, Provider: contender.Provider, Size: c.Size,
			Depth: depth, Metric: c.Metric, Unit: unitOf(c.Metric), Value: Median(values[i]),
			Ceiling: c.Ceiling.Provider}
		if ceiling > 0 {
			rows[i].Ratio = rows[i].Value / ceiling
		}
	}
	return rows, nil
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

// perSecond turns bytes moved in a time into MB/s (10^6 bytes).
func perSecond(bytes int64, took time.Duration) float64 {
	return float64(bytes) / took.Seconds() / 1e6
}

// MedianLatency repeats op for d and returns the median of its times in microseconds.
func MedianLatency(ctx context.Context, d time.Duration, op func() error) (float64, error) {
	const most = 1 << 20
	var times []float64
	for end := time.Now().Add(d); len(times) < most; {
		begin := time.Now()
		if err := op(); err != nil {
			return 0, err
		}
		now := time.Now()
		times = append(times, float64(now.Sub(begin).Nanoseconds())/1e3)
		if now.After(end) || ctx.Err() != nil {
			break
		}
	}
	return Median(times), ctx.Err()
}

// Throughput runs op in depth goroutines for d and returns MB/s, op being size bytes each time. op
// gets the number of its goroutine and how often it has run there.
func Throughput(ctx context.Context, d time.Duration, depth int, size int64,
	op func(worker, i int) error) (float64, error) {
	type result struct {
		bytes int64
		err   error
	}
	results := make(chan result, depth)
	begin := time.Now()
	end := begin.Add(d)
	for w := range depth {
		go func() {
			var r result
			for i := 0; r.err == nil && (i == 0 || time.Now().Before(end)); i++ {
				if r.err = ctx.Err(); r.err == nil {
					r.err = op(w, i)
				}
				if r.err == nil {
					r.bytes += size
				}
			}
			results <- r
		}()
	}
	var total int64
	var failed error
	for range depth {
		r := <-results
		total += r.bytes
		if failed == nil {
			failed = r.err
		}
	}
	return perSecond(total, time.Since(begin)), failed
}
