package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Result is what one measurement found.
type Result struct {
	Took  time.Duration
	Ops   int
	Bytes int64

	// Value is the figure where it is neither bytes nor operations a second: a median latency, or
	// what another program says. 0: there is none.
	Value  float64
	Extras []Extra
	Cost   Cost
}

// Extra is a figure that a measurement yields besides.
type Extra struct {
	Metric string
	Value  float64
}

// Measure works for about d.
type Measure func(ctx context.Context, d time.Duration) (Result, error)

// Add counts operations of size bytes each.
func (r *Result) Add(ops, size int) {
	r.Ops += ops
	r.Bytes += int64(ops) * int64(size)
}

// In is the figure in the unit of a metric. Bandwidth is in MB/s, of 10^6 bytes.
func (r *Result) In(metric string) float64 {
	switch {
	case r.Value != 0 || r.Took == 0:
		return r.Value
	case metric == Rate:
		return float64(r.Ops) / r.Took.Seconds()
	}
	return float64(r.Bytes) / r.Took.Seconds() / 1e6
}

// GiB is how much was moved.
func (r *Result) GiB() float64 { return float64(r.Bytes) / (1 << 30) }

// Repeat does op, which moves size bytes, one at a time for d, and a few times in any event, so
// that one slow start is not the median. The figure is the median of its times in microseconds.
func Repeat(ctx context.Context, d time.Duration, size int, op func() error) (Result, error) {
	const least, most = 9, 1 << 20
	var r Result
	var times []float64
	for start := time.Now(); len(times) < most; {
		begin := time.Now()
		if err := op(); err != nil {
			return r, err
		}
		now := time.Now()
		times = append(times, float64(now.Sub(begin).Nanoseconds())/1e3)
		r.Took = now.Sub(start)
		if len(times) >= least && r.Took >= d || ctx.Err() != nil {
			break
		}
	}
	r.Add(len(times), size)
	r.Value = Median(times)
	return r, ctx.Err()
}

// Load is a number of goroutines that do one kind of operation, each of them one after the other.
type Load struct {
	Depth int // goroutines
	Size  int // bytes of one operation
	Least int // operations that all of them do together, however long it takes; 0: one each

	// Op gets the number of its goroutine and how often it has run there.
	Op func(worker, i int) error
}

// Run works for about d. The first error ends it.
func (l Load) Run(ctx context.Context, d time.Duration) (Result, error) {
	var (
		wg     sync.WaitGroup
		counts = make([]int, l.Depth)
		done   atomic.Int64
		failed atomic.Pointer[error]
	)
	begin := time.Now()
	end := begin.Add(d)
	for w := range l.Depth {
		wg.Go(func() {
			ops := 0 // of this goroutine, in no cache line that others write
			defer func() { counts[w] = ops }()
			for failed.Load() == nil {
				err := ctx.Err()
				if err == nil {
					err = l.Op(w, ops)
				}
				if err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				ops++
				if l.Least > 0 && done.Add(1) < int64(l.Least) {
					continue
				}
				if !time.Now().Before(end) {
					return
				}
			}
		})
	}
	wg.Wait()
	r := Result{Took: time.Since(begin)}
	for _, ops := range counts {
		r.Add(ops, l.Size)
	}
	if err := failed.Load(); err != nil {
		return r, *err
	}
	return r, nil
}
