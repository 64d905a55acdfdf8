package filter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// newThrottle is throttle:rate=BYTES:ops=N[:burst=TIME]: so many bytes of data and so many calls a
// second, over all connections together. What was not used of the last burst may be made up for.
func newThrottle(p *params) wrapper {
	rate, ops := p.bytes("rate", 0), p.count("ops", 0)
	burst := p.duration("burst", 100*time.Millisecond)
	if rate == 0 && ops == 0 {
		p.fail(errors.New("give rate=BYTES or ops=NUMBER, a second"))
	}
	return func(exp nbd.Export, _ Options) (nbd.Export, error) {
		bytes, calls := &pacer{burst: burst}, &pacer{burst: burst}
		return newAround(exp, func(ctx context.Context, r request, next func() error) error {
			var until time.Time
			now := time.Now()
			if ops > 0 {
				until = calls.reserve(now, time.Second/time.Duration(min(ops, uint64(time.Second))))
			}
			if rate > 0 && (r.call == read || r.call == write) {
				cost := time.Duration(float64(r.length) / float64(rate) * float64(time.Second))
				if at := bytes.reserve(now, cost); at.After(until) {
					until = at
				}
			}
			if err := waitUntil(ctx, until); err != nil {
				return err
			}
			return next()
		}, true), nil
	}
}

// pacer gives out time: each request gets a piece of it behind the one before.
type pacer struct {
	burst time.Duration

	mu   sync.Mutex
	next time.Time // when the time that is given out ends
}

// reserve is when a request may begin that costs so much time.
func (p *pacer) reserve(now time.Time, cost time.Duration) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest := now.Add(-p.burst); p.next.Before(earliest) {
		p.next = earliest
	}
	at := p.next
	p.next = p.next.Add(cost)
	return at
}

func waitUntil(ctx context.Context, at time.Time) error {
	return waitFor(ctx, time.Until(at))
}

// waitFor waits, unless the request's connection ends.
func waitFor(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errs.Wrap("filter.wait", "", ctx.Err())
	}
}
