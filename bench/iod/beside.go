package iod

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/iod"
)

// This file is a memory-bound loop in a third process, and how much each way to serve the same load
// slows it down.

// LoopAlone is the loop that nothing disturbs.
const LoopAlone = "loop alone"

const (
	loopBytes  = 64 << 20  // what is copied from and to: more than a processor caches
	besideSize = 256 * kib // of the load's requests

	// besideBytes is what the load moves in a second: each mode manages that with cores to spare.
	besideBytes = 200 * mib
)

// copyMemory does nothing but copy memory for so long, and tells how many bytes it managed. What is
// slowed down by others is memory and processor, since it uses nothing else.
func copyMemory(_ *partner.Session, d time.Duration) (done int64, err error) {
	from, to := make([]byte, loopBytes), make([]byte, loopBytes)
	for i := 0; i < loopBytes; i += 512 {
		from[i] = byte(i) // memory that was never written is one page of zeroes
	}
	const step = mib // between two looks at the clock
	end := time.Now().Add(d)
	for at := 0; time.Now().Before(end); at = (at + step) % loopBytes {
		done += int64(copy(to[at:at+step], from[at:at+step]))
	}
	return done, nil
}

// loop has the third process copy.
func (b *Bench) loop(ctx context.Context, d time.Duration) (r bench.Result, err error) {
	c, err := partner.Dial(ctx, b.Loop)
	if err != nil {
		return r, err
	}
	defer c.Close()
	r.Took = d
	return r, c.Ask(doLoop, d, &r.Bytes)
}

// beside is the loop alone, and beside a server in each of its modes.
func (b *Bench) beside() bench.Case {
	c := newCase("beside", "a loop that copies memory, alone and beside a server that moves "+
		bench.SizeText(besideBytes)+" a second in each mode", besideSize, depth, bench.Bandwidth)
	c.Ceiling = LoopAlone
	c.Add(bench.Contender{Provider: LoopAlone, Measure: b.loop})
	l := load{size: besideSize, depth: depth, pace: besideBytes}
	plain, direct := l, l
	plain.how.NoSums, direct.how.Mode = true, iod.Direct
	for _, p := range b.Providers {
		for _, w := range []way{
			{suffix: ", normal", spec: Spec{Kind: Normal, Bytes: b.data(hotBytes)}, load: plain},
			{suffix: ", mmap", spec: Spec{Kind: Mmap, Bytes: b.data(hotBytes)}, load: plain},
			{suffix: ", unifier, cached", spec: b.fits(false), load: l},
			{suffix: ", unifier, cold", spec: b.exceeds(), load: l},
			{suffix: ", unifier, direct", spec: b.exceeds(), load: direct},
		} {
			c.Add(b.disturbed(p, w))
		}
	}
	return c
}

// disturbed is the loop beside a load.
func (b *Bench) disturbed(provider string, w way) bench.Contender {
	call := &caller{site: b.site(w.spec), provider: provider, load: w.load}
	return bench.Contender{Provider: provider + w.suffix, Close: call.close,
		Measure: func(ctx context.Context, d time.Duration) (bench.Result, error) {
			if err := call.open(ctx); err != nil {
				return bench.Result{}, err
			}
			var moved bench.Result
			over := make(chan error, 1)
			go func() {
				var err error
				moved, err = call.measure(ctx, d)
				over <- err
			}()
			r, err := b.loop(ctx, d)
			if failed := <-over; err == nil {
				err = failed
			}
			r.Extras = []bench.Extra{{Metric: bench.BesideLoad, Value: moved.In(bench.Bandwidth)}}
			return r, err
		}}
}
