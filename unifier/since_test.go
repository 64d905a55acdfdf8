package unifier

import (
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/wire"
)

var other = Key{File: 98, Gen: 1}

// again publishes a write that was acknowledged once.
func (r *rig) again(id Key, off int64, p []byte, st wire.Stamp) error {
	r.Helper()
	d, err := r.Draft(r.ctx, id, seg.Contig(off, int64(len(p))), Hint{})
	r.ok(err)
	scatter(d.Sges(), p)
	d.Again()
	if st.Life == 0 {
		st.Life = r.store.Life() - 1
	}
	_, err = d.Publish(r.ctx, st, stripe.Volatile)
	return err
}

// TestAgainStaysBelow: a write that comes again leaves what was written since, in the cache and in
// the store, and is in the store with its number when it is acknowledged.
func TestAgainStaysBelow(t *testing.T) {
	r := newBack(t)
	r.write(alpha, 100, fill1(testUnit, 2)) // pending
	r.ok(r.again(alpha, 0, fill1(3*testUnit, 1), slot(1, 1)))
	want := slices.Concat(fill1(100, 1), fill1(testUnit, 2), fill1(2*testUnit-100, 1))
	r.holds(alpha, 0, want)
	if got := r.stored(alpha, 0, len(want)); !slices.Equal(got, want) {
		t.Fatal("the store has something else")
	}
	if !r.stamped(alpha, 0, fill1(1, 9), slot(1, 1), stripe.Volatile) {
		t.Fatal("it comes a third time")
	}
	r.ok(r.again(alpha, 50, fill1(100, 3), slot(1, 2))) // what came again itself is not newer
	r.holds(alpha, 0, slices.Concat(fill1(50, 1), fill1(50, 3), fill1(testUnit, 2)))
}

// TestAgainAfterALoss: what was written before the cache has lost something is older than what
// comes again after that.
func TestAgainAfterALoss(t *testing.T) {
	r := newBack(t)
	r.stamped(alpha, 0, fill1(testUnit, 2), slot(2, 1), stripe.Durable)
	r.write(alpha, 0, fill1(testUnit, 1)) // and then it is lost
	r.store.Inject(fault.Rule{Ops: fault.Write, Err: errs.IO, Count: 1})
	if err := r.Sync(r.ctx, alpha); err == nil {
		t.Fatal("nothing was lost")
	}
	r.ok(r.again(alpha, 0, fill1(testUnit, 1), slot(1, 1)))
	r.holds(alpha, 0, fill1(testUnit, 1))
}

// TestAgainTooLate: when too much was written to remember it what comes again is refused, unless
// the backing has it.
func TestAgainTooLate(t *testing.T) {
	r := newBack(t)
	r.stamped(alpha, 0, fill1(testUnit, 1), slot(1, 1), stripe.Durable)
	const most = 64 << 10 // that the cache remembers
	for i := range int64(most + 1) {
		r.Wrote(alpha, 1<<30+2*i, 1)
	}
	r.ok(r.again(alpha, 0, fill1(testUnit, 1), slot(1, 1)))
	if err := r.again(alpha, 0, fill1(testUnit, 3), slot(1, 2)); errs.KindOf(err) != errs.IO {
		t.Fatal(err)
	}
	r.holds(alpha, 0, fill1(testUnit, 1))
}

// lose has the cache lose something of another object.
func (r *rig) lose() {
	r.Helper()
	lost := Key{File: 100 + r.Losses(), Gen: 1} // the one before is written through now
	r.write(lost, 0, fill1(testUnit, 1))
	r.store.Inject(fault.Rule{Ops: fault.Write, Err: errs.IO, Count: 1})
	if err := r.Sync(r.ctx, lost); err == nil {
		r.Fatal("nothing was lost")
	}
}

// TestAgainAfterTwoLosses: what was written between two losses is later than what the first one
// has taken, although the cache has forgotten it; the backing knows.
func TestAgainAfterTwoLosses(t *testing.T) {
	for name, between := range map[string]func(r *rig){
		"nothing": func(*rig) {},
		"another": func(r *rig) {
			r.stamped(other, 0, fill1(testUnit, 2), slot(2, 1), stripe.Durable)
		},
		"durable": func(r *rig) {
			r.stamped(alpha, 0, fill1(testUnit, 2), slot(2, 1), stripe.Durable)
		},
		"synced": func(r *rig) {
			r.write(alpha, 0, fill1(testUnit, 2))
			r.ok(r.Sync(r.ctx, alpha))
		},
		"sent again": func(r *rig) { // of the life between, and in the next
			st := slot(2, 1)
			st.Life = r.store.Life()
			r.lose()
			r.ok(r.again(alpha, 0, fill1(testUnit, 2), st))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newBack(t)
			st := slot(1, 1)
			st.Life = r.store.Life()
			r.lose()
			between(r)
			r.lose()
			err := r.again(alpha, 0, fill1(testUnit, 1), st)
			if name == "nothing" || name == "another" {
				r.ok(err)
				r.holds(alpha, 0, fill1(testUnit, 1))
				return
			}
			if errs.KindOf(err) != errs.IO {
				t.Fatal(err)
			}
			r.holds(alpha, 0, fill1(testUnit, 2))
		})
	}
}

// TestAgainWithoutANumber: nobody can tell whether it is in the backing, and below what. It comes
// back only if nothing of its life has reached the backing, but for others that came again.
func TestAgainWithoutANumber(t *testing.T) {
	r := newBack(t)
	st := wire.Stamp{Life: r.store.Life()}
	r.stamped(other, 0, fill1(testUnit, 2), slot(2, 1), stripe.Durable)
	r.lose()
	for i := range 3 {
		r.ok(r.again(alpha, int64(i*testUnit), fill1(testUnit, 1), st))
	}
	r.holds(alpha, 0, fill1(3*testUnit, 1))
	if err := r.again(other, 0, fill1(testUnit, 1), st); errs.KindOf(err) != errs.IO {
		t.Fatal(err)
	}
	r.holds(other, 0, fill1(testUnit, 2))
	for _, unknown := range []uint64{1 << 62, r.store.Life() + 1} {
		st.Life = unknown
		if err := r.again(alpha, 0, fill1(testUnit, 3), st); errs.KindOf(err) != errs.IO {
			t.Fatal(err)
		}
	}
}
