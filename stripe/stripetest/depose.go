package stripetest

import (
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// eachWrite calls every request of a writer on the object, with its epoch.
func (r *rig) eachWrite(id stripe.ObjectID, epoch uint32, fn func(name string, err error)) {
	buf, st := [][]byte{fill(10, 1)}, wire.Stamp{Epoch: epoch}
	fn("WriteAt", r.e.WriteAt(r.ctx, id, buf, 0, st, stripe.Volatile))
	fn("WriteAt durable", r.e.WriteAt(r.ctx, id, buf, 0, st, stripe.Durable))
	fn("WriteSums", r.e.WriteSums(r.ctx, id, nil, 0, nil, []wire.Stamp{st}, stripe.Volatile))
	fn("Punch", r.e.Punch(r.ctx, id, 0, 5, st, stripe.Volatile))
	fn("Zero", r.e.Zero(r.ctx, id, 0, 5, st, stripe.Volatile))
	fn("Blank", r.e.Blank(r.ctx, id, 0, 5, st, stripe.Volatile))
	_, _, err := r.e.Reserve(r.ctx, id, stripe.Reservation{Len: 5}, st)
	fn("Reserve", err)
	fn("Release", r.e.Release(r.ctx, id, 0, 5, st))
	_, err = r.e.Admit(r.ctx, id, 0, 5, st, 0)
	fn("Admit", err)
}

// writerRefused checks that an epoch is refused whatever it writes, and changes nothing.
func (r *rig) writerRefused(id stripe.ObjectID, epoch uint32) {
	r.Helper()
	r.eachWrite(id, epoch, func(name string, err error) {
		r.Helper()
		if errs.KindOf(err) != errs.Fenced {
			r.Errorf("%s in epoch %d: got %v, want kind %q", name, epoch, err, errs.Fenced)
		}
	})
}

func deposed(t testing.TB, c Config) {
	r := newRig(t, c)
	r.writeAs(alpha, 0, fill(100, 1), wire.Stamp{Epoch: 3})
	r.ok(r.e.SetMinEpoch(r.ctx, alpha.File, 3)) // its own epoch goes on
	r.writeAs(alpha, 50, fill(50, 2), wire.Stamp{Epoch: 3})
	r.ok(r.e.SetMinEpoch(r.ctx, alpha.File, 4))
	if got := r.e.MinEpoch(alpha.File); got != 4 {
		t.Fatalf("the minimal epoch is %d, want 4", got)
	}
	want := append(fill(50, 1), fill(50, 2)...)
	r.writerRefused(alpha, 3)
	r.writerRefused(alpha, 0)
	absent := stripe.ObjectID{File: alpha.File, Gen: alpha.Gen, Stripe: 99}
	r.writerRefused(absent, 3)
	if n := len(r.list()); n != 1 {
		t.Fatalf("there are %d objects: one has come to life by what was refused", n)
	}
	r.holds(alpha, 0, want)
	r.eachWrite(alpha, 4, func(name string, err error) {
		if err != nil {
			t.Errorf("%s in the present epoch: %v", name, err)
		}
	})
	other := stripe.ObjectID{File: alpha.File + 1, Gen: 1}
	r.write(other, 0, fill(10, 5)) // another file has no epochs
	r.truncate(alpha, 7, seq(1))   // truncations go by their sequence
	r.size(alpha, 7)
	r.ok(r.e.SetMinGeneration(r.ctx, alpha.File, alpha.Gen+1)) // both fences of one file
	r.allRefused(alpha, errs.Fenced)
	next := alpha
	next.Gen++
	r.writerRefused(next, 3)
	r.ok(r.e.Remove(r.ctx, alpha))
}

func deposedReopen(t testing.TB, c Config) {
	r := newRig(t, c)
	r.writeAs(alpha, 0, fill(100, 1), wire.Stamp{Epoch: 1})
	for f := range uint64(300) {
		r.ok(r.e.SetMinEpoch(r.ctx, 100+f, uint32(f%5)+2))
	}
	r.ok(r.e.SetMinEpoch(r.ctx, alpha.File, 9))
	r.ok(r.e.SetMinEpoch(r.ctx, alpha.File, 4))
	r.ok(r.e.SetMinGeneration(r.ctx, 150, 7))
	for range 2 {
		r.writerRefused(alpha, 8)
		r.holds(alpha, 0, fill(100, 1))
		r.writerRefused(stripe.ObjectID{File: 399, Gen: 1}, 5)
		if got := r.e.MinEpoch(150); got != 2 {
			t.Fatalf("the minimal epoch of a file with both fences is %d, want 2", got)
		}
		r.allRefused(stripe.ObjectID{File: 150, Gen: 6}, errs.Fenced)
		r.reopen()
	}
	r.writeAs(alpha, 0, fill(100, 2), wire.Stamp{Epoch: 9})
	r.holds(alpha, 0, fill(100, 2))
}

// raceDepose fences writers while they write: nothing of an old one is acknowledged afterwards, and
// nothing of it lies over what the new one has written.
func raceDepose(t testing.TB, c Config) {
	r := newRig(t, c)
	for epoch := range uint32(10) {
		var wg sync.WaitGroup
		defer wg.Wait() // when the round fails
		for range 4 {
			wg.Go(func() {
				for range 20 {
					_ = r.e.WriteAt(r.ctx, alpha, [][]byte{fill(5000, 1)}, 0, wire.Stamp{Epoch: epoch}, 0)
				}
			})
		}
		r.ok(r.e.SetMinEpoch(r.ctx, alpha.File, epoch+1))
		r.writeAs(alpha, 0, fill(5000, 2), wire.Stamp{Epoch: epoch + 1})
		wg.Wait()
		r.holds(alpha, 0, fill(5000, 2))
	}
}
