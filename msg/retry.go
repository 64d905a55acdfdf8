package msg

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Backoff says how long to wait between attempts: First after the first one, twice as long
// after each further one, at most Max; each wait is shortened by a random part of up to a
// half, so that those who failed together do not come back together.
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

// wait is the pause after so many failed attempts (1 for the first).
func (b Backoff) wait(failures int) time.Duration {
	d := b.Max
	if shift := failures - 1; shift < 20 {
		d = min(b.Max, b.First<<shift)
	}
	return d - rand.N(d/2+1)
}

// Retry calls fn until it succeeds, fails with an error that waiting does not mend, or ctx
// ends; then it returns fn's last error. Waiting mends errs.Disconnected, errs.Shutdown and
// errs.Again. Whether a request may be repeated after errs.Disconnected is for fn to know.
func Retry(ctx context.Context, b Backoff, fn func(ctx context.Context) error) error {
	b = b.withDefaults()
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for failures := 1; ; failures++ {
		err := fn(ctx)
		if err == nil || !passing(err) || ctx.Err() != nil {
			return err
		}
		timer.Reset(b.wait(failures))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return err
		}
	}
}

// passing tells whether an error may be gone after a while.
func passing(err error) bool {
	switch errs.KindOf(err) {
	case errs.Disconnected, errs.Shutdown, errs.Again:
		return true
	}
	return false
}
