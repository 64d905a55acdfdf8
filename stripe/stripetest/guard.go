package stripetest

import (
	"context"
	"math"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func guardCases() []Case {
	return []Case{
		{"a fenced generation is refused", fenced},
		{"a fence survives a restart and never goes back", fenceReopen},
		{"what is fenced can be removed", fencedRemove},
		{"a writer of a fenced epoch is refused, its object is not", deposed},
		{"a fenced epoch survives a restart and never goes back", deposedReopen},
		{"the verifier stays across a restart", verifierStays},
		{"lives are numbered upward, across restarts too", livesRise},
		{"an object knows the last two lives that it was changed in", livesNoted},
		{"a change that names its life is of that one", livesNamed},
		{"ranges beyond the limits are refused", limits},
		{"a cancelled request does nothing", cancelled},
		{"a closed store refuses everything", closed},
	}
}

// each calls every request on the object, with the stamp given.
func (r *rig) each(ctx context.Context, id stripe.ObjectID, fn func(name string, err error)) {
	buf := [][]byte{fill(10, 1)}
	fn("ReadAt", r.e.ReadAt(ctx, id, [][]byte{make([]byte, 10)}, 0))
	fn("WriteAt", r.e.WriteAt(ctx, id, buf, 0, seq(1), stripe.Volatile))
	fn("WriteAt durable", r.e.WriteAt(ctx, id, buf, 0, seq(1), stripe.Durable))
	fn("Truncate", r.e.Truncate(ctx, id, 5, seq(1)))
	fn("Punch", r.e.Punch(ctx, id, 0, 5, seq(1), stripe.Volatile))
	fn("Zero", r.e.Zero(ctx, id, 0, 5, seq(1), stripe.Volatile))
	fn("Blank", r.e.Blank(ctx, id, 0, 5, seq(1), stripe.Volatile))
	_, _, err := r.e.Reserve(ctx, id, stripe.Reservation{Len: 5}, seq(1))
	fn("Reserve", err)
	fn("Release", r.e.Release(ctx, id, 0, 5, seq(1)))
	fn("Sync", r.e.Sync(ctx, id))
	_, err = r.e.Stat(ctx, id)
	fn("Stat", err)
	_, err = r.e.Map(ctx, id, 0, 10, 10)
	fn("Map", err)
}

func (r *rig) allRefused(id stripe.ObjectID, want errs.Kind) {
	r.Helper()
	r.each(r.ctx, id, func(name string, err error) {
		r.Helper()
		if errs.KindOf(err) != want {
			r.Errorf("%s: got %v, want kind %q", name, err, want)
		}
	})
}

func fenced(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(100, 1))
	other := stripe.ObjectID{File: 8, Gen: 1}
	r.write(other, 0, fill(100, 2))
	r.ok(r.e.SetMinGeneration(r.ctx, alpha.File, alpha.Gen)) // its own generation goes on
	r.holds(alpha, 0, fill(100, 1))
	r.ok(r.e.SetMinGeneration(r.ctx, alpha.File, alpha.Gen+1))
	r.allRefused(alpha, errs.Fenced)
	r.allRefused(stripe.ObjectID{File: alpha.File, Gen: 1, Stripe: 99}, errs.Fenced)
	r.holds(other, 0, fill(100, 2))
	next := alpha
	next.Gen++
	r.holds(next, 0, make([]byte, 100))
	r.write(next, 0, fill(100, 3))
	r.holds(next, 0, fill(100, 3))
}

func fenceReopen(t testing.TB, c Config) {
	r := newRig(t, c)
	for f := range uint64(300) {
		r.ok(r.e.SetMinGeneration(r.ctx, f, uint32(f%5)+2))
	}
	r.ok(r.e.SetMinGeneration(r.ctx, alpha.File, 9))
	r.ok(r.e.SetMinGeneration(r.ctx, alpha.File, 4))
	for range 2 {
		r.ok(r.e.Sync(r.ctx, stripe.ObjectID{})) // a fence of file 0 does not concern all objects
		r.allRefused(stripe.ObjectID{File: alpha.File, Gen: 8}, errs.Fenced)
		r.allRefused(stripe.ObjectID{File: 299, Gen: 5}, errs.Fenced)
		r.holds(stripe.ObjectID{File: alpha.File, Gen: 9}, 0, make([]byte, 9))
		r.holds(stripe.ObjectID{File: 299, Gen: 6}, 0, make([]byte, 9))
		r.reopen()
	}
}

func fencedRemove(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(100, 1))
	r.ok(r.e.SetMinGeneration(r.ctx, alpha.File, alpha.Gen+1))
	if n := len(r.list()); n != 1 {
		t.Fatalf("List names %d objects, want the fenced one", n)
	}
	r.ok(r.e.Remove(r.ctx, alpha))
	if n := len(r.list()); n != 0 {
		t.Fatalf("List names %d objects after Remove", n)
	}
	r.allRefused(alpha, errs.Fenced)
}

func verifierStays(t testing.TB, c Config) {
	r := newRig(t, c)
	before := r.e.Verifier()
	if before != r.e.Verifier() {
		t.Fatal("the verifier changes while the store is open")
	}
	r.write(alpha, 0, fill(10, 1))
	r.reopen()
	// A clean restart keeps what was acknowledged, so that the verifier has no reason to change.
	if r.cfg.Reopen != nil && r.e.Verifier() != before {
		t.Fatal("the verifier changed although nothing was lost")
	}
	other := newRig(t, c)
	if other.e.Verifier() == before {
		t.Fatal("two stores have one verifier")
	}
}

func limits(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(10, 1))
	const top = int64(stripe.MaxObjectBytes)
	for _, x := range []struct {
		off, n int64
		want   errs.Kind
	}{
		{-1, 1, errs.Invalid}, {math.MinInt64, 1, errs.Invalid}, {top, 1, errs.TooBig},
		{top - 1, 2, errs.TooBig}, {math.MaxInt64, 1, errs.TooBig},
	} {
		p := [][]byte{make([]byte, x.n)}
		r.refused(r.e.ReadAt(r.ctx, alpha, p, x.off), x.want)
		r.refused(r.e.WriteAt(r.ctx, alpha, p, x.off, wire.Stamp{}, stripe.Volatile), x.want)
		r.refused(r.e.Punch(r.ctx, alpha, x.off, x.n, wire.Stamp{}, stripe.Volatile), x.want)
		_, err := r.e.Map(r.ctx, alpha, x.off, x.n, 1)
		r.refused(err, x.want)
	}
	r.refused(r.e.Punch(r.ctx, alpha, 0, -1, wire.Stamp{}, stripe.Volatile), errs.Invalid)
	r.refused(r.e.Punch(r.ctx, alpha, 1, math.MaxInt64, wire.Stamp{}, stripe.Volatile), errs.TooBig)
	r.refused(r.e.Truncate(r.ctx, alpha, -1, seq(1)), errs.Invalid)
	r.refused(r.e.Truncate(r.ctx, alpha, top+1, seq(1)), errs.TooBig)
	r.holds(alpha, 0, fill(10, 1))
	r.holds(alpha, top-10, make([]byte, 10))
	if in := r.stat(alpha); in.Size != 10 || in.TruncSeq != 0 {
		t.Fatalf("refused requests left %+v", in)
	}
}

func cancelled(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(100, 5))
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	check := func(name string, err error) {
		if errs.KindOf(err) != errs.Canceled {
			t.Errorf("%s: got %v, want kind %q", name, err, errs.Canceled)
		}
	}
	r.each(ctx, alpha, check)
	check("Remove", r.e.Remove(ctx, alpha))
	check("SetMinGeneration", r.e.SetMinGeneration(ctx, alpha.File, 99))
	check("SetMinEpoch", r.e.SetMinEpoch(ctx, alpha.File, 99))
	check("List", r.e.List(ctx, func(stripe.Info) bool { return true }))
	check("Sync all", r.e.Sync(ctx, stripe.ObjectID{}))
	r.holds(alpha, 0, fill(100, 5))
	r.size(alpha, 100)
}

func closed(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(100, 5))
	r.ok(r.e.Close())
	r.allRefused(alpha, errs.Closed)
	r.refused(r.e.Remove(r.ctx, alpha), errs.Closed)
	r.refused(r.e.SetMinGeneration(r.ctx, 1, 1), errs.Closed)
	r.refused(r.e.SetMinEpoch(r.ctx, 1, 1), errs.Closed)
	r.refused(r.e.List(r.ctx, func(stripe.Info) bool { return true }), errs.Closed)
	r.refused(r.e.Sync(r.ctx, stripe.ObjectID{}), errs.Closed)
	_, err := r.e.Space()
	r.refused(err, errs.Closed)
	r.ok(r.e.Close())
}
