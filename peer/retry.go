package peer

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
)

// Backoff says how long to wait between attempts: First after the first one, twice as long after
// each further one, at most Max; each wait is shortened by a random part of up to a half, so that
// callers that failed together do not retry together.
type Backoff struct {
	First time.Duration // default 10 ms
	Max   time.Duration // default 1 s
}

func (b Backoff) withDefaults() Backoff {
	if b.First <= 0 {
		b.First = 10 * time.Millisecond
	}
	if b.Max <= 0 {
		b.Max = time.Second
	}
	b.Max = max(b.Max, b.First)
	return b
}

// wait is the pause after failed attempts.
func (b Backoff) wait(failures int) time.Duration {
	d := b.Max
	if shift := failures - 1; shift < 20 {
		d = min(b.Max, b.First<<shift)
	}
	return d - rand.N(d/2+1)
}

// Retry calls fn until it succeeds, fails with an error that does not pass by itself (errs.Passes),
// or ctx ends; then it returns fn's last error. It is the only place that repeats a request because
// its peer was lost. fn must know whether its request may be repeated.
func Retry(ctx context.Context, b Backoff, fn func(ctx context.Context) error) error {
	b = b.withDefaults()
	for failures := 1; ; failures++ {
		err := fn(ctx)
		if err == nil || !errs.Passes(ctx, err) || ctx.Err() != nil {
			return err
		}
		if !wait.Sleep(ctx, b.wait(failures)) {
			return err
		}
	}
}

// Forever is a Patience.Max without an end.
const Forever time.Duration = -1

// Patience is how long to wait for a peer that does not answer, for whatever reason.
type Patience struct {
	Peer    string        // who is waited for, in the error
	Max     time.Duration // negative: Forever
	Backoff Backoff
}

// Do is Retry for at most Max, counted from since. When that is over it returns errs.TimedOut, with
// the peer and what was wrong the last time; or errs.Again, if that was the peer's last answer.
// When ctx ends before, it is the error of ctx.
func (p *Patience) Do(ctx context.Context, since time.Time,
	fn func(ctx context.Context) error) error {
	limit := ctx
	above, ok := ctx.(wait.Parent)
	switch {
	case p.Max < 0:
	case ok:
		c := wait.Below(above, since, p.Max)
		defer c.Release()
		limit = c
	case ctx.Done() == nil:
		c := wait.Within(ctx, since, p.Max)
		defer c.Release()
		limit = c
	default:
		var cancel context.CancelFunc
		limit, cancel = context.WithDeadline(ctx, since.Add(p.Max))
		defer cancel()
	}
	var last error // before the time was up: a later error only says that it was
	err := Retry(limit, p.Backoff, func(ctx context.Context) error {
		err := fn(ctx)
		if err != nil && (ctx.Err() == nil || last == nil) {
			last = err
		}
		return err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errs.New(errs.KindOf(ctx.Err()), "peer.Retry", p.Peer, last)
	case limit.Err() == nil || !errs.Passes(ctx, err):
		return err
	case errs.KindOf(last) == errs.Again:
		return last
	}
	return errs.Newf(errs.TimedOut, "peer.Retry", p.Peer,
		"not done within %v (last: %v); see `sluice status`", p.Max, last)
}
