package unifier

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe/hook/fault"
)

// TestStreamsAreWrittenWhileTheyGoOn: what is pending of a stream is written as soon as it makes
// the largest write, and the rest waits for more; what is written here and there waits for its
// age.
func TestStreamsAreWrittenWhileTheyGoOn(t *testing.T) {
	const (
		step  = 64 << 10
		steps = 4 << 20 / step // make the largest write
	)
	beta := Key{File: 2}
	r := newRig(t, Config{MemoryBytes: 64 << 20, DirtyBytes: 16 << 20, DirtyAge: time.Hour})
	for i := range 2 * steps / 4 {
		r.write(beta, int64(2*i)*step, fill1(step, 1)) // each leaves a gap
	}
	for i := range steps - 1 {
		r.write(alpha, int64(i)*step, fill1(step, 1))
	}
	if n := r.store.Calls(fault.Write); n != 0 {
		t.Fatalf("%d writes reached the store", n)
	}
	r.write(alpha, (steps-1)*step, fill1(step, 2))
	r.write(alpha, steps*step, fill1(step, 3)) // it may just miss the run
	waitFor(t, func() bool { return r.store.Calls(fault.Write) >= 1 })
	waitFor(t, func() bool { return r.Stats().Dirty <= (steps/2+1)*step })
	if got := r.stored(alpha, (steps-1)*step, 1)[0]; got != 2 {
		t.Fatalf("the store has %d at the end of the run", got)
	}
	if got := r.stored(beta, 0, 1)[0]; got != 0 {
		t.Fatalf("what was written here and there is in the store: %d", got)
	}
	for i := range 3 * steps { // it goes on
		r.write(alpha, int64(steps+1+i)*step, fill1(step, 4))
	}
	waitFor(t, func() bool { return r.Stats().Dirty <= (steps/2+steps)*step })
	r.ok(r.Sync(r.ctx, alpha))
	r.ok(r.Sync(r.ctx, beta))
}
